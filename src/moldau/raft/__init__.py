"""The metadata quorum's log and its leadership."""
