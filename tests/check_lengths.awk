# check_lengths.awk FILE... : no function over 80 lines. One begins at the last line before its brace
# that is not indented, and ends at a brace alone; tables end otherwise.
/^[A-Za-z_]/ && !/^[a-z_]+:$/ { began = FNR }
/^}$/ && FNR - began >= 80 {
    printf "%s:%d: a function of %d lines; expected at most 80\n", FILENAME, began, FNR - began + 1
    bad = 1
}
END { exit bad }
