#!/usr/bin/env python3
"""newest.py's table beside the wheels of the versions that requirements/ pins."""
import newest

if __name__ == "__main__":
    newest.main(newest.pins())
