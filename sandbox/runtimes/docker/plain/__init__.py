"""Instances that are one container of any image: built, saved, restored and looked into through the engine alone, so that it need
not be on this machine; faster and deeper where the manager is root beside it."""
