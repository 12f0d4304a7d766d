//! Reads the figures of other programs for the plot, from a simple CSV file.

use std::fs;
use std::path::Path;

/// The columns that are read, in any order, among others; fields have no quotes.
const COLUMNS: [&str; 3] = ["peer", "workload", "ns_med"];

#[derive(Clone, Debug, PartialEq)]
pub struct PeerFigure {
    pub peer: String,
    /// The bench's workload for the same work.
    pub workload: String,
    pub ns_med: f64,
}

/// The first line names the columns.
pub fn read(path: &Path) -> Result<Vec<PeerFigure>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str) -> Result<Vec<PeerFigure>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (_, head) = lines.next().ok_or("the file is empty")?;
    let head: Vec<&str> = head.split(',').map(str::trim).collect();
    let column = |name: &str| {
        let at = head.iter().position(|column| *column == name);
        at.ok_or_else(|| format!("no column {name}; the first line names peer, workload and ns_med"))
    };
    let [peer, workload, ns_med] = COLUMNS;
    let [peer, workload, ns_med] = [column(peer)?, column(workload)?, column(ns_med)?];
    let figure = |(i, line): (usize, &str)| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field =
            |at: usize| fields.get(at).copied().ok_or_else(|| format!("line {}: too few fields", i + 1));
        let ns = field(ns_med)?;
        let number = ns.parse().ok().filter(|ns: &f64| ns.is_finite() && *ns > 0.0);
        let number =
            number.ok_or_else(|| format!("line {}: ns_med is {ns:?}, but must be above 0", i + 1))?;
        Ok(PeerFigure { peer: field(peer)?.into(), workload: field(workload)?.into(), ns_med: number })
    };
    lines.map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let figures = parse("# DPDK\nworkload,runs,peer,ns_med\npage_direct,5,mempool, 5.3\n\n");
        let expected = PeerFigure { peer: "mempool".into(), workload: "page_direct".into(), ns_med: 5.3 };
        assert_eq!(figures, Ok(vec![expected]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let wrong = |text| parse(text).expect_err("it is wrong");
        assert!(wrong("").contains("empty"));
        assert!(wrong("peer,workload\n").contains("no column ns_med"));
        assert!(wrong("peer,workload,ns_med\na,b\n").contains("line 2: too few fields"));
        assert!(wrong("peer,workload,ns_med\na,b,0\n").contains("line 2: ns_med is \"0\""));
    }
}
