"""The broker's options, a file for each subject. Tables: each declares, none decides."""
