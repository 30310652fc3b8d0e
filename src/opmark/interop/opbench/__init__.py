"""OpBench: its command line, its models by their names, its operator table, its folder of results."""
