"""What will it cost? Commands that answer, each beside its flags."""
