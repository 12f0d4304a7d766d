# Collects sorted lines of "SCENARIO PROGRAM PART VALUE", for the script of a table after this one.
#
# order[1..keys]  the keys "SCENARIO PROGRAM PART", in the order of the lines
# v[key, 1..n[key]]  their values, in order
{
    key = $1 " " $2 " " $3
    if (!(key in n)) { n[key] = 0; order[++keys] = key }
    v[key, ++n[key]] = $4
}

function median(key,  m) {
    m = n[key]
    return m % 2 ? v[key, (m + 1) / 2] : (v[key, m / 2] + v[key, m / 2 + 1]) / 2
}
