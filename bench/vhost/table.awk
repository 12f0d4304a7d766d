# The table of compare.sh, after ../medians.awk. A scenario has the distance of the CPUs behind a slash.
END {
    print "| scenario | CPUs | program | rounds | M packets/s | lowest to highest |" \
        " ours / this | ticks per packet |"
    print "|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= keys; i++) {
        split(order[i], w, " ")
        if (w[3] != "figure") continue
        key = order[i]; ours = w[1] " ours figure"; split(w[1], at, "/")
        line = "| " at[1] " | " at[2] " | " w[2] " | " n[key] " | " sprintf("%.2f", median(key) / 1e6)
        line = line " | " sprintf("%.2f to %.2f", v[key, 1] / 1e6, v[key, n[key]] / 1e6) " | "
        line = line (w[2] == "ours" || !(ours in n) ? "" : sprintf("%.2f", median(ours) / median(key))) " | "
        for (p = split("all receive handler return transmit", parts, " "); p >= 1; p--) {
            part = w[1] " " w[2] " " parts[p]
            if (part in n) ticks = parts[p] sprintf(" %.1f", median(part)) (ticks == "" ? "" : ", " ticks)
        }
        print line ticks " |"; ticks = ""
    }
}
