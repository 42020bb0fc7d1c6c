"""What several kernel classes share: ops and fields, launches, tiles, rates."""
