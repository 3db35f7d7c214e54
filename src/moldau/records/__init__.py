"""Record batches (format v2): header view, build, iterate, compress, validate, control records."""
