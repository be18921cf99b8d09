"""What sessions did, kept beside the ledger so that it can be done again: `autoclave bisect` replays it."""

from sandbox.actions.action import ActionKind, RecordedAction, is_secret
from sandbox.actions.log import ActionLog, Notes, Unrecorded, open_actions
from sandbox.actions.reading import Recording, read

__all__ = ["ActionKind", "ActionLog", "Notes", "RecordedAction", "Recording", "Unrecorded", "is_secret", "open_actions", "read"]
