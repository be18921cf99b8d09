#!/bin/sh
# A reset by hand. It forgets what it does not know of, which is why its result is checked.
printf 'milk 2\ncheese 7\n' > /workspace/prices.txt
