"""What every kernel costs at every pair of clocks, and what is asked of a plan."""
