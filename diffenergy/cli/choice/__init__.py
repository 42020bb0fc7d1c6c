"""Which clock, hardware, plan or fleet? Commands that search, each beside its flags."""
