# lengths.awk FILE... : no file of src/ or adapters/ over 700 lines (specrt.h: 1,000); no function
# over 80. One begins at the last line before its brace
# that is not indented, and ends at a brace alone; tables end otherwise.
/^[A-Za-z_]/ && !/^[a-z_]+:$/ { began = FNR }
/^}$/ && FNR - began >= 80 {
    printf "%s:%d: a function of %d lines; expected at most 80\n", FILENAME, began, FNR - began + 1
    bad = 1
}
FNR == 701 && FILENAME ~ /^(src|adapters)\// && FILENAME != "src/specrt.h" || FNR == 1001 && FILENAME == "src/specrt.h" {
    printf "%s: over %d lines\n", FILENAME, FNR - 1
    bad = 1
}
END { exit bad }
