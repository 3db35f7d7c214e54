"""What a consumer of a share group decides (KIP-932): what it is assigned, fetches and acknowledges.

Plain values in, effects out, time as `now_ms`.
"""
