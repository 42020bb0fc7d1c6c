"""How far predictions are from what was measured, and what a fit has learnt."""
