"""Integer and linear programs over epochs, and the solvers behind them."""
