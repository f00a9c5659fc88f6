"""What the agent decides: values in, frozen effects out. No I/O, clock, logging or libraries; time comes in as `now`."""
