# find.bash : sets `python` to the first of $PYTHON, Debian's python3 and python3 with numpy 1.22 or
# later; where there is none, to nothing, and `why` says so.
has_numpy='import numpy, re, sys
sys.exit([int(n) for n in re.findall(r"\d+", numpy.__version__)[:2]] < [1, 22])'
for python in "${PYTHON:-}" /usr/bin/python3 python3 ""; do
    if [ -n "$python" ] && "$python" -c "$has_numpy" 2>/dev/null; then break; fi
done
why="no python3 with numpy 1.22 or later (apt-get install -y python3-numpy); PYTHON= names another"
[ -z "$python" ] || why=
