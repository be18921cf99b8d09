"""The catalogue's part for browsers: what an agent that drives one can leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import Leak
from sandbox.model import Depth, ResetMethod

_DB = """
const opening = indexedDB.open('planted', 1);
opening.onupgradeneeded = () => opening.result.createObjectStore('notes');
await new Promise((done, failed) => { opening.onsuccess = done; opening.onerror = failed; });
const writing = opening.result.transaction('notes', 'readwrite');
writing.objectStore('notes').put('planted', 'key');
await new Promise((done) => { writing.oncomplete = done; });
opening.result.close();
"""
# A site may forbid workers of its pages' own making, or what it answers to be kept: then nothing would be planted, and nobody told.
_WORKER = """
const worker = new Worker(URL.createObjectURL(new Blob(['postMessage(1); setInterval(() => 0, 1000)'])));
await new Promise((done, failed) => {
  worker.onmessage = done;
  worker.onerror = () => failed(new Error('the site forbids it'));
});
"""
_SHARED_WORKER = """
const source = new Blob(['onconnect = (event) => event.ports[0].postMessage(1)']);
const worker = new SharedWorker(URL.createObjectURL(source), 'planted');
await new Promise((done, failed) => {
  worker.port.onmessage = done;
  worker.onerror = () => failed(new Error('the site forbids it'));
});
"""
_CACHED = """
const answer = await fetch('/cached', { cache: 'reload' });
await answer.text();
const rule = answer.headers.get('Cache-Control') || '';
if (!answer.ok || rule.includes('no-store')) throw new Error('the site has nothing at /cached that may be kept');
"""
WRITTEN_S = 30.0  # by then a browser has put on disk what it keeps: local storage after 5 s, history after 10
SETTINGS = "chrome://settings/"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserLeak(Leak):
    """Planted in the first tab, which has the focus: it is led to `visit`, then `script` (the body of an async function) runs there
    as after a click of the user, then `calls` of the protocol are made (those that begin with `page:` in the tab's session).

    `shows` is always given: the visit alone changes other fields.

    Names in braces stand for things of the environment: {origin} and {other} (two of its sites), {cookie} (a cookie of golden's
    for the first one, with {domain}), {item} (a key of golden's local storage there), {window} (the first tab's, a number).
    """

    repaired_by: ResetMethod = ResetMethod.RESTORE  # a browser's state is never cleaned in place
    visit: str = "{origin}/"
    script: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    shown_within_s: float = WRITTEN_S


COOKIES = (
    BrowserLeak(
        name="cookie",
        what="a cookie that a page wrote",
        shows="cookie/{domain} / planted",
        script="document.cookie = 'planted=1; max-age=9999'",
    ),
    BrowserLeak(
        name="session-cookie",
        what="a cookie that ends with the browser",
        shows="cookie/{domain} / planted-session",
        script="document.cookie = 'planted-session=1'",
    ),
    BrowserLeak(
        name="http-only-cookie",
        what="a cookie that no page sees",
        shows="cookie/{domain} / planted-http",
        calls=(
            ("Storage.setCookies", {"cookies": [{"name": "planted-http", "value": "1", "url": "{origin}/", "httpOnly": True}]}),
        ),
    ),
    BrowserLeak(
        name="cookie-of-another-site",
        what="a cookie of a site that was never visited",
        shows="cookie/elsewhere.test / planted",
        calls=(("Storage.setCookies", {"cookies": [{"name": "planted", "value": "1", "url": "https://elsewhere.test/a"}]}),),
    ),
    BrowserLeak(
        name="partitioned-cookie",
        what="a cookie of one site inside another",
        shows="cookie/inner.test / planted in *",
        calls=(
            (
                "page:Network.setCookie",
                {
                    "name": "planted",
                    "value": "1",
                    "url": "https://inner.test/",
                    "secure": True,
                    "sameSite": "None",
                    "partitionKey": {"topLevelSite": "https://outer.test", "hasCrossSiteAncestor": True},
                },
            ),
        ),
    ),
    BrowserLeak(
        name="cookie-changed",
        what="another value of a cookie",
        shows="cookie/{domain} / {cookie}",
        script="document.cookie = '{cookie}=planted; max-age=9999'",
    ),
    BrowserLeak(
        name="cookie-removed",
        what="a cookie less",
        shows="cookie/{domain} / {cookie}",
        calls=(("page:Network.deleteCookies", {"name": "{cookie}", "domain": "{domain}", "path": "/"}),),
    ),
)
OPEN = (
    BrowserLeak(
        name="tab-elsewhere",
        what="the first tab shows another page",
        shows="target/page {origin}/planted",
        script="history.pushState({}, '', '/planted')",
    ),
    BrowserLeak(
        name="tab",
        what="a tab more",
        shows="target/page {origin}/planted-tab",
        calls=(("Target.createTarget", {"url": "{origin}/planted-tab"}),),
    ),
    BrowserLeak(
        name="blank-tab", what="an empty tab more", shows="targets", calls=(("Target.createTarget", {"url": "about:blank"}),)
    ),
    BrowserLeak(
        name="popup",
        what="a window that a page opened",
        shows="target/page {origin}/planted-popup opened by a page",
        script="window.open('/planted-popup', 'planted', 'width=300')",
    ),
    BrowserLeak(
        name="window",
        what="a window more",
        shows="target/page data:text/html,planted",
        calls=(("Target.createTarget", {"url": "data:text/html,planted", "newWindow": True}),),
    ),
    BrowserLeak(
        name="context", what="a context beside the default one", shows="contexts", calls=(("Target.createBrowserContext", {}),)
    ),
    BrowserLeak(
        name="worker",
        what="a worker that goes on",
        shows="target/worker*",
        script=_WORKER,
    ),
    BrowserLeak(
        name="shared-worker",
        what="a worker that pages share",
        shows="target/shared_worker blob:*",
        script=_SHARED_WORKER,
    ),
    BrowserLeak(
        name="service-worker",
        what="a worker that answers in the place of the site from now on",
        shows="target/service_worker {origin}/worker.js",
        script="await navigator.serviceWorker.register('/worker.js'); await navigator.serviceWorker.ready",
    ),
    BrowserLeak(
        name="window-size",
        what="a window of another size",
        shows="window/900x500 normal",
        calls=(("page:Browser.setWindowBounds", {"windowId": "{window}", "bounds": {"width": 900, "height": 500}}),),
    ),
    BrowserLeak(
        name="download",
        what="a file that was downloaded",
        shows="downloads/./planted.txt",
        script="const a = document.createElement('a'); a.href = 'data:text/plain,planted'; a.download = 'planted.txt'; a.click()",
    ),
    BrowserLeak(
        name="clipboard",
        what="a text in the clipboard",
        shows="clipboard",
        seen=Depth.DEEP,
        script="""
const area = document.createElement('textarea'); document.body.append(area); area.value = 'planted'; area.select();
if (!document.execCommand('copy')) throw new Error('not copied'); area.remove();
""",
    ),
)
STORED = (
    BrowserLeak(
        name="local-storage",
        what="an item of local storage",
        shows="profile/Default/Local Storage/leveldb/_{origin}*planted",
        seen=Depth.DEEP,
        script="localStorage.setItem('planted', 'planted')",
    ),
    BrowserLeak(
        name="local-storage-changed",
        what="another value of an item",
        shows="profile/Default/Local Storage/leveldb/_{origin}*{item}",
        seen=Depth.DEEP,
        script="localStorage.setItem('{item}', 'planted')",
    ),
    BrowserLeak(
        name="local-storage-removed",
        what="an item less",
        shows="profile/Default/Local Storage/leveldb/_{origin}*{item}",
        seen=Depth.DEEP,
        script="localStorage.removeItem('{item}')",
    ),
    BrowserLeak(
        name="local-storage-elsewhere",
        what="an item of a second site",
        shows="profile/Default/Local Storage/leveldb/_{other}*planted",
        seen=Depth.DEEP,
        visit="{other}/",
        script="localStorage.setItem('planted', 'planted')",
    ),
    BrowserLeak(
        name="session-storage",
        what="an item of a tab's storage",
        shows="profile/Default/Session Storage/*planted",
        seen=Depth.DEEP,
        script="sessionStorage.setItem('planted', '1')",
    ),
    BrowserLeak(name="indexed-db", what="a database of a page", shows="profile/Default/IndexedDB/*", seen=Depth.DEEP, script=_DB),
    BrowserLeak(
        name="cache-storage",
        what="a response that a page keeps",
        shows="profile/other files/Default/Service Worker/CacheStorage/*",
        seen=Depth.DEEP,
        script="await (await caches.open('planted')).put('/planted', new Response('planted'))",
    ),
    BrowserLeak(
        name="private-files",
        what="a file in a page's own file system",
        shows="profile/other files/Default/File System/*",
        seen=Depth.DEEP,
        script="""
const file = await (await navigator.storage.getDirectory()).getFileHandle('planted', {create: true});
const writer = await file.createWritable(); await writer.write('planted'); await writer.close();
""",
    ),
    BrowserLeak(
        name="http-cache",
        what="a response that the browser keeps",
        shows="profile/other files/Default/Cache/*{origin}/cached",
        seen=Depth.DEEP,
        script=_CACHED,
    ),
    BrowserLeak(
        name="history",
        what="an address that was visited",
        shows="profile/Default/History urls/*",
        seen=Depth.DEEP,
        visit="{origin}/#planted-history",
    ),
)
SETTINGS_OF_THE_BROWSER = (
    BrowserLeak(
        name="preference",
        what="another home page",
        shows="profile/Default/Preferences/homepage",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="await chrome.settingsPrivate.setPref('homepage', 'http://planted.test/')",
    ),
    BrowserLeak(
        name="languages",
        what="languages that every request asks for",
        shows="profile/Default/Preferences/intl.*",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="await chrome.settingsPrivate.setPref('intl.accept_languages', 'de')",
    ),
    BrowserLeak(
        name="zoom",
        what="a larger print of every page",
        shows="profile/Default/Preferences/partition.default_zoom_level*",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="chrome.settingsPrivate.setDefaultZoom(1.5)",
    ),
    BrowserLeak(
        name="site-permission",
        what="a permission that a site has from now on",
        shows="profile/Default/Preferences/*exceptions.popups*",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="chrome.send('setCategoryPermissionForPattern', ['{origin}', '', 'popups', 'allow', false])",
    ),
    BrowserLeak(
        name="default-permission",
        what="what every site may do from now on",
        shows="profile/Default/Preferences/profile.default_content_setting_values*",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="chrome.send('setDefaultValueForContentType', ['notifications', 'block'])",
    ),
    BrowserLeak(
        name="address",
        what="an address that forms are filled with",
        shows="profile/Default/Web Data address*",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="""
chrome.autofillPrivate.saveAddress({fields: [{type: 'NAME_FULL', value: 'Planted Person'},
  {type: 'ADDRESS_HOME_CITY', value: 'Planted'}, {type: 'ADDRESS_HOME_COUNTRY', value: 'US'}]});
""",
    ),
    BrowserLeak(
        name="password",
        what="a password that forms are filled with",
        shows="profile/Default/Login Data logins/*",
        seen=Depth.DEEP,
        visit="chrome://password-manager/passwords",
        script="""
await chrome.passwordsPrivate.addPassword(
  {url: '{origin}/', username: 'planted', password: 'planted', note: '', useAccountStore: false});
""",
    ),
    BrowserLeak(
        name="bookmark",
        what="a bookmark",
        shows="profile/Default/Bookmarks/*",
        seen=Depth.DEEP,
        visit="chrome://bookmarks/",
        script="await chrome.bookmarks.create({parentId: '1', title: 'planted', url: '{origin}/'})",
    ),
    BrowserLeak(
        name="dictionary",
        what="a word that is no longer misspelt",
        shows="profile/other files/Default/Custom Dictionary.txt",
        seen=Depth.DEEP,
        visit=SETTINGS,
        script="chrome.languageSettingsPrivate.addSpellcheckWord('plantedword')",
    ),
)
UNSEEN = (
    BrowserLeak(
        name="granted-permission",
        what="a permission that the protocol granted",
        seen=None,
        calls=(("Browser.grantPermissions", {"permissions": ["geolocation"], "origin": "{origin}"}),),
        blind="the protocol cannot be asked for it; it is held in memory, and ends with the browser",
    ),
    BrowserLeak(
        name="http-authentication",
        what="a name and password that were accepted",
        seen=None,
        script="await fetch('http://planted:planted@' + location.host + '/private').catch(() => 0)",
        blind="the network service keeps it in memory and tells nobody; it ends with the browser",
    ),
)
LEAKS: tuple[BrowserLeak, ...] = (*COOKIES, *OPEN, *STORED, *SETTINGS_OF_THE_BROWSER, *UNSEEN)
CATALOGUE = Catalogue(kind="browser", leaks=LEAKS)
