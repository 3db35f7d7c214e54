"""Options: what each is called, what it may be, and what it is. Values only; any room may import this one."""
