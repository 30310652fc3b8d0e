"""ByteMicroPerf: its workloads, its reports, and its command line of 2024, 2025 and 2026 (launch.py)."""
