"""What a consumer decides: where it reads, what it fetches next, what it owns in its group, what it commits.

Plain values in, effects out, time as `now_ms`.
"""
