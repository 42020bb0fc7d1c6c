"""Text models that were published with eager passes to compare with: these also
train."""
