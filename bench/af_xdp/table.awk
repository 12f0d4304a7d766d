# The table of compare.sh, after ../medians.awk.
END {
    print "| scenario | program | median | lowest to highest |" \
        " ours / this | equal / this | cycles per packet |"
    print "|---|---|---|---|---|---|---|"
    for (i = 1; i <= keys; i++) {
        split(order[i], w, " ")
        if (w[3] != "figure") continue
        key = order[i]; form = w[1] ~ /^(tcp|gather)/ ? "%.2f" : "%.0f"
        ours = w[1] " ours figure"; equal = w[1] " equal figure"
        line = "| " w[1] " | " w[2] " | " sprintf(form, median(key))
        line = line " | " sprintf(form " to " form, v[key, 1], v[key, n[key]]) " | "
        line = line (w[2] == "ours" || !(ours in n) ? "" : sprintf("%.2f", median(ours) / median(key))) " | "
        line = line (w[2] == "equal" || !(equal in n) ? "" : sprintf("%.2f", median(equal) / median(key)))
        line = line " | "
        for (p = split("all receive handler return transmit call calls", parts, " "); p >= 1; p--) {
            part = w[1] " " w[2] " " parts[p]
            if (part in n) cycles = parts[p] sprintf(" %.1f", median(part)) (cycles == "" ? "" : ", " cycles)
        }
        run = w[1] " " w[2] " "
        if (w[2] ~ /^(ours|equal)$/ && (run "receive") in n)
            cycles = cycles sprintf("; receive + handler + return %.1f",
                median(run "receive") + median(run "handler") + median(run "return"))
        print line cycles " |"; cycles = ""
    }
}
