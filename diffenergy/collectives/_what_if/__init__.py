"""What to buy and what may fail: links slower, faster or gone."""
