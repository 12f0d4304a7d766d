//! Who holds the pages of a pool, as lines and as JSON.

use std::time::Duration;

use pagepool::{AGE_EDGES, HolderGroup, HolderView, HoldersView, PoolRef, ThreadView};
use serde_json::{Value, json};

use crate::report::{Verdict, grouped};

/// Columns of a line: on a terminal at least this many, without one this many. Without one, tags may add
/// more.
const COLUMNS: usize = 80;
/// The least columns of a tag, and of the place of an allocation.
const TAG: usize = 10;
const SITE: usize = 16;
/// The most groups and oldest pages in lines; JSON has the whole view.
const MOST_GROUPS: usize = 12;
const MOST_OLDEST: usize = 6;
const AGE: usize = 8;

/// A histogram of ages, the holders with their number of pages, and the oldest pages. Lines fit these
/// columns; without a number, tags are not cut.
pub fn lines(view: &HoldersView, indent: &str, columns: Option<usize>) -> Vec<String> {
    let s = if view.held == 1 { "" } else { "s" };
    let mut lines = vec![format!("{indent}holders: {} page{s}", grouped(view.held))];
    if view.held == 0 {
        return lines;
    }
    let ages = |cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>AGE$}")).collect();
        format!("{indent}  {cells}")
    };
    let heads = AGE_EDGES.iter().map(|&edge| format!("<{}", short(edge)));
    lines.push(ages(heads.chain(["older".into()]).collect()));
    lines.push(ages(view.ages.iter().map(|&pages| grouped(pages)).collect()));
    lines.extend(groups(view, indent, columns));
    let oldest = view.oldest.iter().take(MOST_OLDEST);
    lines.extend(oldest.flat_map(|holder| page(holder, indent, columns)));
    lines
}

/// A line for each group, the largest first.
fn groups(view: &HoldersView, indent: &str, columns: Option<usize>) -> Vec<String> {
    let tag_columns = tag_columns(view, indent, columns);
    let columns = columns.unwrap_or(COLUMNS).max(COLUMNS);
    let row = |[pages, age, tag, thread, site]: [&str; 5]| {
        let (tag, thread) = (cut(tag, tag_columns), cut(thread, 16));
        let row = format!("{indent}{pages:>7} {age:>8} {tag:<tag_columns$} {thread:<16} ");
        let room = columns.saturating_sub(row.chars().count()).max(SITE);
        format!("{row}{}", end_of(site, room)).trim_end().to_owned()
    };
    let group = |group: &HolderGroup| {
        let thread = group.thread.as_ref().map_or("-".into(), |thread| thread.name.clone());
        let (pages, age) = (grouped(group.pages), short(group.oldest));
        row([&pages, &age, or_dash(&group.tag), &thread, or_dash(&group.site)])
    };
    let mut lines = vec![row(["pages", "oldest", "tag", "thread", "allocated at"])];
    lines.extend(view.groups.iter().take(MOST_GROUPS).map(group));
    let more = view.more_groups + view.groups.len().saturating_sub(MOST_GROUPS) as u64;
    if more > 0 {
        lines.push(format!("{indent}  and {more} more groups"));
    }
    lines
}

/// The columns of the longest tag, if there is room beside the other cells.
fn tag_columns(view: &HoldersView, indent: &str, columns: Option<usize>) -> usize {
    let tags = view.groups.iter().take(MOST_GROUPS).map(|group| or_dash(&group.tag).chars().count());
    let beside = indent.len() + (7 + 1 + 8 + 1 + 1 + 16 + 1) + SITE; // as in the row
    let room = columns.map_or(usize::MAX, |columns| columns.max(COLUMNS).saturating_sub(beside));
    tags.max().unwrap_or(0).min(room).max(TAG)
}

/// A page that has been out for long, and the stack of its allocation.
fn page(holder: &HolderView, indent: &str, columns: Option<usize>) -> Vec<String> {
    let columns = columns.map(|columns| columns.max(COLUMNS));
    let tag = holder.tag.as_ref().map_or(String::new(), |tag| format!(", tag {tag}"));
    let thread = holder.thread.as_ref().map_or(String::new(), |thread| format!(", thread {thread}"));
    let age = short(holder.age.unwrap_or_default());
    let first = format!("{indent}  page {:?} for {age}{tag}{thread}", holder.page);
    let stack = holder.stack.iter().flat_map(|stack| stack.lines());
    let frames = stack.map(|frame| format!("{indent}    {}", cut(frame, columns.unwrap_or(COLUMNS) - 8)));
    std::iter::once(cut(&first, columns.unwrap_or(usize::MAX))).chain(frames).collect()
}

fn or_dash(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or("-")
}

pub fn short(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}s", ms / 1_000),
        ms @ 60_000..3_600_000 => format!("{}min", ms / 60_000),
        ms @ 3_600_000..172_800_000 => format!("{}h", ms / 3_600_000),
        ms => format!("{}d", ms / 86_400_000),
    }
}

fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

/// The end of a text: in a path it says most.
fn end_of(text: &str, columns: usize) -> String {
    let all = text.chars().count();
    match all > columns {
        true => format!("…{}", text.chars().skip(all - columns + 1).collect::<String>()),
        false => text.to_owned(),
    }
}

pub fn thread(thread: &Option<ThreadView>) -> Option<Value> {
    thread.as_ref().map(|thread| json!({ "tid": thread.tid, "name": thread.name }))
}

pub fn json(view: &HoldersView) -> Value {
    let ms = |age: Duration| age.as_millis() as u64;
    let below = AGE_EDGES.iter().map(|&edge| Some(ms(edge))).chain([None]);
    let ages = below.zip(view.ages).map(|(below, pages)| json!({ "below_ms": below, "pages": pages }));
    let oldest = view.oldest.iter().map(|HolderView { page, age, tag, thread: of, site, stack, .. }| {
        json!({
            "page": page.0, "age_ms": age.map(ms), "tag": tag, "thread": thread(of), "site": site, "stack": stack,
        })
    });
    let groups = view.groups.iter().map(|HolderGroup { pages, oldest, tag, thread: of, site, .. }| {
        json!({
            "pages": pages, "oldest_ms": ms(*oldest), "tag": tag, "thread": thread(of), "site": site,
        })
    });
    json!({
        "held": view.held,
        "ages": ages.collect::<Vec<_>>(),
        "oldest": oldest.collect::<Vec<_>>(),
        "groups": groups.collect::<Vec<_>>(),
        "more_groups": view.more_groups,
    })
}

/// Adds to a verdict who holds the missing buffers, for pools that record it.
pub fn add_to_verdict(verdict: &mut Verdict, pools: &[PoolRef]) {
    let all = pools.iter().filter_map(|pool| Some((pool.name(), pool.holders()?)));
    let holding: Vec<_> = all.filter(|(_, view)| view.held > 0).collect();
    for (pool, view) in &holding {
        verdict.line(&format!("  of pool {pool}:"));
        lines(view, "    ", Some(COLUMNS)).iter().for_each(|line| verdict.line(line));
    }
    let pools = holding.iter().map(|(pool, view)| json!({ "pool": pool, "holders": json(view) }));
    verdict.field("holders", pools.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::{Arena, ArenaParams, Holders, Pool, PoolParams};

    #[test]
    fn times_have_one_unit() {
        let times = [0, 999, 1_000, 61_000, 3_600_000, 48 * 3_600_000].map(Duration::from_millis);
        assert_eq!(times.map(short), ["0ms", "999ms", "1s", "1min", "1h", "2d"]);
    }

    #[test]
    fn tags_are_whole_where_there_is_room() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let params = PoolParams { holders: Holders::Sites { stacks: None }, ..Default::default() };
        let pool = Pool::new(params, arena).unwrap().bind();
        let tag = "passed to a stack that keeps what it got"; // of 40 characters
        pool.set_tag(Some(pool.tag(tag)));
        let _kept = pool.alloc_page();
        let view = pool.handle().holders().unwrap();
        let cases = [(Some(80), 25), (Some(90), 35), (Some(95), 40), (Some(200), 40), (None, 40)];
        for (columns, room) in cases {
            let all = lines(&view, "    ", columns);
            let group = all.iter().find(|line| line.contains("passed") && !line.contains(", tag ")).unwrap();
            assert!(group.contains(&format!(" {} ", &tag[..room])), "{columns:?}: {all:#?}");
            assert!(group.contains("rs:"), "{columns:?}: {all:#?}");
            let widest = all.iter().map(|line| line.chars().count()).max();
            assert!(columns.is_none_or(|columns| widest <= Some(columns)), "{all:#?}");
        }
    }

    #[test]
    fn lines_fit_a_terminal_and_name_who_holds_what() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let holders = Holders::Sites { stacks: std::num::NonZeroU32::new(1) };
        let pool = Pool::new(PoolParams { holders, ..Default::default() }, arena).unwrap().bind();
        assert_eq!(lines(&pool.handle().holders().unwrap(), "", None), ["holders: 0 pages"]);
        pool.set_tag(Some(pool.tag("a tag that is longer than its column is wide")));
        let kept: Vec<_> = (0..20).filter_map(|_| pool.alloc_page()).collect();
        let view = pool.handle().holders().unwrap();
        let all = lines(&view, "    ", Some(80));
        assert!(all.iter().all(|line| line.chars().count() <= COLUMNS), "{all:#?}");
        assert_eq!(all[0], "    holders: 20 pages");
        assert_eq!(all[1].split_whitespace().collect::<Vec<_>>()[..3], ["<10ms", "<100ms", "<1s"]);
        let group = all.iter().find(|line| line.contains("a tag that")).unwrap();
        assert!(group.contains("lders.rs:") && group.trim_start().starts_with("20 "), "{group}");
        assert!(all.iter().any(|line| line.contains("lines_fit_a_terminal")), "a stack: {all:#?}");
        let json = json(&view);
        assert_eq!((&json["held"], &json["groups"][0]["pages"]), (&json!(20), &json!(20)));
        let sum =
            |key: &str| json[key].as_array().unwrap().iter().filter_map(|at| at["pages"].as_u64()).sum();
        assert_eq!((sum("ages"), sum("groups")), (20_u64, 20_u64));
        drop(kept);
        let _one = pool.alloc_page();
        assert_eq!(lines(&pool.handle().holders().unwrap(), "", None)[0], "holders: 1 page");
    }
}
