"""ByteMicroPerf's command line, of all three generations: launch.py of 2024, 2025 and 2026."""
