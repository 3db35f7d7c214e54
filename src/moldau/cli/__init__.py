"""The `moldau` command: one file per subcommand, loaded when it is called."""
