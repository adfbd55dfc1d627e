"""Messages between real agents: no folders, no processes, no compiler."""
