"""What a producer decides: which record goes into which batch, which batch leaves when and with which number,
and what becomes of a transaction. Rules only: values in, effects out, time as `now_ms`, chance as a `Random`.

`moldau.client.producer` performs what is decided here.
"""
