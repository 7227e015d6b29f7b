"""What the program tests and the chaos test share: processes, ports, reports, broker."""
