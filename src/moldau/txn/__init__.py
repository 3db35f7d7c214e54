"""Transactions, as their coordinator decides about them: who may write, what a transaction spans, how it
ends."""
