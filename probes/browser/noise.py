"""What in a profile is not compared, and why. Everything else is: a file or a key that nobody thought of shows as a difference."""

from __future__ import annotations

from fnmatch import fnmatchcase

# Files (and directories with all below), as shell-style patterns of paths in the profile.
FILES: tuple[tuple[str, str], ...] = (
    ("*/LOCK", "a lock"),
    ("*/LOG", "a log of a database's own work"),
    ("*/LOG.old", "the same, of the run before"),
    ("Default/LO[CG]*", "the same, of the profile"),
    ("Singleton*", "names the running process"),
    ("Last Version", "the browser's version is read over its protocol"),
    ("*-journal", "read with its database"),
    ("*-wal", "read with its database"),
    ("*-shm", "read with its database"),
    ("*/index-dir", "an index over entries that are read"),
    ("Default/*Cache*/index", "the same"),
    ("*/CacheStorage/*/index", "the same"),
    ("Default/Shared Dictionary/cache/index", "the same"),
    ("Default/Cache/No_Vary_Search", "the same, of addresses whose parameters do not matter"),
    ("*ShaderCache", "compiled drawing programs"),
    ("*GPUCache", "compiled drawing programs"),
    ("*GraphiteCache", "compiled drawing programs"),
    ("GPUPersistentCache", "compiled drawing programs"),
    ("Default/Sessions", "the tabs of this run, which are read over the protocol; a restart of ours opens none of them"),
    ("Default/Sessions_Encrypted", "the same, under a key of its own"),
    ("Default/shared_proto_db", "counters of how the browser's own features are used"),
    ("Default/Segmentation Platform", "the same"),
    ("segmentation_platform", "the same"),
    ("Default/PreferredApps", "written some seconds after the start; no application can be installed here"),
    ("BrowserMetrics*", "measurements of this run"),
    ("Crash Reports", "measurements of this run"),
    ("Variations", "no experiment is fetched here; it counts starts"),
    ("*_crx_cache", "packages of the browser's own components"),
)
# Keys of JSON files and tables of databases, as `file:key`.
KEYS: tuple[tuple[str, str], ...] = (
    ("*:meta", "the version of a database's form"),
    ("*:sqlite_sequence", "the numbers of rows that are read"),
    ("Default/DIPS:config", "when it last looked"),
    ("Default/Network Action Predictor:resource_prefetch_predictor_metadata", "the version of its form"),
    ("Default/heavy_ad_intervention_opt_out.db:enabled_previews_v1", "the version of its form"),
    ("Default/Top Sites:top_sites", "made from the history, which is read, some time after it changed"),
    ("Default/WebStorage/QuotaManager:buckets", "how often each storage was used; what it holds is read"),
    ("Default/Preferences:ntp.*", "what a new tab would suggest, from the history, which is read"),
    ("Default/Preferences:*last_time*", "when something was last done"),
    ("Default/Preferences:total_passwords_available*", "counts passwords, which are read, some time after the start"),
    ("Default/Preferences:password_manager.*_migrated_to_os_crypt_async", "the browser's own upkeep, a minute after its start"),
    ("Default/Preferences:profile.were_old_google_logins_removed", "the same"),
    ("Local State:optimization_guide.*", "how fast the machine is, measured minutes after the start"),
    ("Default/Preferences:*_time", "when something was last done"),
    ("Default/Preferences:*_timestamp*", "when something was last done"),
    ("Default/Preferences:*_update", "when something was last done"),
    ("Default/Preferences:*last_update*", "when something was last done"),
    ("Default/Preferences:*last_modified", "when something was last done"),
    ("Default/Preferences:*.expiration", "when something ends"),
    ("Default/Preferences:*_start_times", "when something was last done"),
    ("Default/Preferences:*session_number", "counts starts"),
    ("Default/Preferences:gaia_cookie.*", "when something was last done"),
    ("Default/Preferences:google.services.signin_scoped_device_id", "drawn by lot at the start"),
    ("Default/Preferences:profile.content_settings.exceptions.site_engagement.chrome://*", "the browser's own pages"),
    ("Default/Preferences:profile.content_settings.exceptions.site_engagement", "the same: it is a leaf when there are none"),
    ("Default/Preferences:*lastEngagementTime", "when something was last done"),
    ("Default/Preferences:profile.exit_type", "says that it is running"),
    ("Default/Preferences:protection.*", "a seal over other keys, which are read"),
    ("Default/Secure Preferences:protection.*", "a seal over other keys, which are read"),
    ("Default/Preferences:schedule_to_flush_to_disk", "when something was last done"),
    ("Default/Preferences:segmentation_platform.*", "how the browser's own features are used"),
    ("Default/Preferences:sessions.event_log", "counts starts"),
    ("Default/Preferences:sessions.session_data_status", "says that it is running"),
    ("Default/Preferences:in_product_help.*", "counts starts"),
    ("Local State:profile.info_cache.*", "what it shows of a profile, filled some seconds after the start"),
    ("Local State:session_id_generator_last_value", "counts what was opened"),
    ("Local State:user_experience_metrics.*", "measurements"),
    ("Local State:performance_intervention.*", "measurements"),
    ("Local State:tab_stats.*", "measurements"),
    ("Local State:*_timestamp", "when something was last done"),
    ("Local State:*_time", "when something was last done"),
    ("Local State:*last_statistics_update", "when something was last done"),
    ("Local State:profile_counts_reported", "when something was last done"),
    ("Local State:updateclient*", "no component is fetched here"),
    ("Default/Preferences:password_manager.*_migrated_to_os_crypt_async", "a step of its own, some seconds after the start"),
    ("Default/Preferences:profile.were_old_google_logins_removed", "the same"),
)

# Files whose every byte a page chose, in private file systems and IndexedDB: whatever they look like, nothing is left out of them.
_OF_PAGES = ("Default/File System/*", "*.indexeddb.blob/*")


def is_of_pages(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in _OF_PAGES)


def skips_file(path: str) -> bool:
    names = path.split("/")
    return any(fnmatchcase("/".join(names[:n]), pattern) for pattern, _ in FILES for n in range(1, len(names) + 1))


def skips_key(file: str, key: str) -> bool:
    full = f"{file}:{key}"
    return any(fnmatchcase(full, pattern) for pattern, _ in KEYS)
