"""Plans where a change of clocks costs nothing: hulls, knapsack, integer finish."""
