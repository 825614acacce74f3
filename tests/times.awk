# times.awk : seconds of CPU, of files NAME.times that hold what a shell's `times` printed.
function seconds(time, part) { split(time, part, /[ms]/); return 60 * part[1] + part[2] }
FNR == 1 { name = FILENAME; sub(/.*\//, "", name); sub(/\.times$/, "", name) }
{ sum[name] += seconds($1) + seconds($2) }
END { for (name in sum) printf "%7.1f s of CPU  %s\n", sum[name], name }
