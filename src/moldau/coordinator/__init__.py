"""The replicated state machine that groups and transactions run on."""
