#!/bin/sh
# Exit code 0 is success. It runs in a fresh sandbox; the agent's files are read-only.
grep -qx 'bread 3' /workspace/prices.txt && grep -qx 'milk 2' /workspace/prices.txt && grep -qx 'cheese 7' /workspace/prices.txt
