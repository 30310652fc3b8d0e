"""Take samples of a launch with a clock. This package knows no operators and no frameworks."""
