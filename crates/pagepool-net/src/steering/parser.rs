//! Parses an expression.

use std::net::IpAddr;

use pagepool::Error;

use super::expression::{ETHER_IP, ETHER_IP6, Expression, Fact, ICMP6, Prefix, address_of};
use crate::error::parameter;

/// The most parts of an expression: jumps can span its program, and the kernel's verifier accepts it.
const MOST_TESTS: usize = 256;
/// The deepest nesting of `not` and parentheses: the parser is recursive.
const DEEPEST: usize = 32;

const ETHER_TYPES: [(&str, u16); 3] = [("ip", ETHER_IP), ("ip6", ETHER_IP6), ("arp", 0x0806)];
const PROTOCOLS: [(&str, u8); 9] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", ICMP6),
    ("sctp", 132),
];
const KNOWN: &str = "all, ethertype, ether proto, ip, ip6, arp, vlan, proto, tcp, udp, sctp, icmp, icmp6, \
                     nd, host, net, port, portrange, src, dst, fragment, not or (";

/// The sides, and the words that begin an address or a port.
const SIDES: [&str; 2] = ["src", "dst"];
const ENDPOINTS: [&str; 6] = ["src", "dst", "host", "net", "port", "portrange"];

type Parsed = Result<Expression, Error>;

pub(super) fn parse(text: &str) -> Parsed {
    let mut parser = Parser { text, words: words(text), next: 0, tests: 0, depth: 0 };
    let expression = parser.expression()?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.refuse("and, or, or the end")),
    }
}

/// The words of a text, each with its offset.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return all };
        let len = match first {
            '(' | ')' | '!' => 1,
            '&' | '|' if rest[1..].starts_with(first) => 2,
            _ => rest.find(|c: char| c.is_whitespace() || "()!&|".contains(c)).unwrap_or(rest.len()).max(1),
        };
        all.push((text.len() - rest.len(), &rest[..len]));
        rest = &rest[len..];
    }
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<(usize, &'a str)>,
    next: usize,
    tests: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|&(_, word)| word)
    }

    /// Takes the next word if it is one of `any`.
    fn take(&mut self, any: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| any.contains(&word));
        self.next += usize::from(found);
        found
    }

    /// Takes the next word if `read` accepts it, and returns the value.
    fn read<T>(&mut self, must_be: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, Error> {
        let value = self.peek().and_then(read).ok_or_else(|| self.refuse(must_be))?;
        self.next += 1;
        Ok(value)
    }

    /// The error for the next word: `must_be` says what may be there.
    fn refuse(&self, must_be: &str) -> Error {
        let found = match self.words.get(self.next) {
            Some(&(at, word)) => format!("{word:?} at column {}", self.text[..at].chars().count() + 1),
            None => format!("its end at column {}", self.text.chars().count() + 1),
        };
        parameter("match", format!("{:?}, with {found}", self.text), format!("one with {must_be} there"))
    }

    /// The text from this word to the last one that was taken.
    fn text_from(&self, start: usize) -> &'a str {
        let (end, last) = self.words[self.next - 1];
        &self.text[self.words[start].0..end + last.len()]
    }

    /// Alternatives of parts that must all be true.
    fn expression(&mut self) -> Parsed {
        let (mut any, mut all) = (Vec::new(), vec![self.factor()?]);
        loop {
            if self.take(&["or", "||"]) {
                any.push(Expression::joined(std::mem::take(&mut all), true));
                all.push(self.factor()?);
            } else if self.peek().is_some_and(|word| ["and", "&&"].contains(&word)) {
                if !any.is_empty() {
                    return Err(
                        self.refuse("parentheses around the `or` before it or around this `and`, not `and`")
                    );
                }
                self.next += 1;
                all.push(self.factor()?);
            } else {
                any.push(Expression::joined(all, true));
                return Ok(Expression::joined(any, false));
            }
        }
    }

    fn factor(&mut self) -> Parsed {
        if self.depth == DEEPEST {
            return Err(self.refuse(&format!("at most {DEEPEST} nested `not` and parentheses")));
        }
        self.depth += 1;
        let start = self.next;
        let factor = if self.take(&["not", "!"]) {
            self.factor()?.negated().named(self.text_from(start))
        } else if self.take(&["("]) {
            let inner = self.expression()?;
            if !self.take(&[")"]) {
                return Err(self.refuse("and, or, or a closing parenthesis"));
            }
            inner
        } else {
            self.part()?.named(self.text_from(start))
        };
        self.depth -= 1;
        Ok(factor)
    }

    fn part(&mut self) -> Parsed {
        if self.tests == MOST_TESTS {
            return Err(self.refuse(&format!("at most {MOST_TESTS} parts, and no further one")));
        }
        self.tests += 1;
        match self.peek().unwrap_or("") {
            word if ENDPOINTS.contains(&word) => self.endpoint(),
            word => self.keyword(word),
        }
    }

    /// A part that begins with this word, the next one.
    fn keyword(&mut self, word: &str) -> Parsed {
        self.next += 1;
        let nd = || {
            let message = Expression::within(Fact::Icmp6, 133, 137); // RFC 4861
            [Expression::equal(Fact::Family, 6u32), Expression::equal(Fact::Protocol, ICMP6), message]
        };
        Ok(match word {
            "all" => Expression::Always(true),
            "ethertype" => self.ether_type()?,
            "ether" if self.take(&["proto"]) => self.ether_type()?,
            "ether" => return Err(self.refuse("proto")),
            "arp" => of_type(word),
            "ip" | "ip6" if self.take(&["proto"]) => {
                Expression::joined([of_type(word), self.protocol()?], true)
            }
            "ip" | "ip6" => self.qualified(of_type(word), &["host", "net", "port", "portrange"])?,
            "tcp" | "udp" | "sctp" => self.qualified(of_protocol(word), &["port", "portrange"])?,
            "icmp" => Expression::joined([of_type("ip"), of_protocol(word)], true),
            "icmp6" => Expression::joined([of_type("ip6"), of_protocol(word)], true),
            "proto" => self.protocol()?,
            "vlan" => self.vlan()?,
            "nd" => Expression::joined(nd(), true),
            "fragment" => Expression::equal(Fact::Fragment, 1u32),
            _ => {
                self.next -= 1;
                return Err(self.refuse(&format!("one of {KNOWN}")));
            }
        })
    }

    /// A type or protocol, and the part that may follow it directly: `udp dst port 53`.
    fn qualified(&mut self, of: Expression, allowed: &[&str]) -> Parsed {
        let at_side = usize::from(self.peek().is_some_and(|word| SIDES.contains(&word)));
        let word = self.words.get(self.next + at_side).map_or("", |&(_, word)| word);
        if allowed.contains(&word) {
            return Ok(Expression::joined([of, self.endpoint()?], true));
        }
        self.next += at_side;
        if at_side == 0 { Ok(of) } else { Err(self.refuse(&one_of(allowed.iter()))) }
    }

    fn ether_type(&mut self) -> Parsed {
        let read = |word: &str| named(&ETHER_TYPES, word).or_else(|| number(word));
        let number = self.read("an EtherType from 0 to 0xffff, ip, ip6 or arp", read)?;
        Ok(Expression::equal(Fact::EtherType, number))
    }

    fn protocol(&mut self) -> Parsed {
        let small = |word: &str| number(word).and_then(|number| u8::try_from(number).ok());
        let read = |word: &str| named(&PROTOCOLS, word).or_else(|| small(word));
        let must_be = format!("a protocol from 0 to 255, {}", one_of(PROTOCOLS.iter().map(|(name, _)| name)));
        self.read(&must_be, read).map(|protocol| Expression::equal(Fact::Protocol, protocol))
    }

    fn vlan(&mut self) -> Parsed {
        if !self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(Expression::within(Fact::Tag(0), 0, 0xfff));
        }
        let id = self.read("a VLAN ID from 0 to 4095", |word| number(word).filter(|id| *id < 4096))?;
        Ok(Expression::joined((0..2).map(|which| Expression::equal(Fact::Tag(which), id)), false))
    }

    /// An address, a prefix, a port or a range of ports, of one side or either.
    fn endpoint(&mut self) -> Parsed {
        let sides: &[usize] = match self.peek() {
            Some("src") => &[0],
            Some("dst") => &[1],
            _ => &[0, 1],
        };
        self.next += usize::from(sides.len() == 1);
        let word = self.peek().unwrap_or("");
        self.next += 1;
        let ports = |(first, last)| {
            let within = |&side: &usize| Expression::within(Fact::Port(side), first, last);
            Expression::joined(sides.iter().map(within), false)
        };
        Ok(match word {
            "host" => {
                let host = self.read("an IPv4 or IPv6 address: names are not looked up", host)?;
                Expression::addresses(sides, &host)
            }
            "net" => Expression::addresses(sides, &self.net()?),
            "port" => ports(self.read("a port from 0 to 65535", number).map(|port| (port, port))?),
            "portrange" => ports(self.read("a range of ports such as 5000-5999", range)?),
            _ => {
                self.next -= 1;
                return Err(self.refuse("host, net, port or portrange"));
            }
        })
    }

    fn net(&mut self) -> Result<Prefix, Error> {
        let prefix = self.read("a prefix such as 10.0.0.0/8 or fd00::/8", prefix)?;
        if let Some(exact) = without_host_bits(&prefix) {
            self.next -= 1;
            return Err(self.refuse(&format!("no bits set after the prefix: {exact}")));
        }
        Ok(prefix)
    }
}

/// The EtherType of this name, which must be in the table.
fn of_type(name: &str) -> Expression {
    Expression::equal(Fact::EtherType, in_table(&ETHER_TYPES, name))
}

/// The protocol of this name, which must be in the table.
fn of_protocol(name: &str) -> Expression {
    Expression::equal(Fact::Protocol, in_table(&PROTOCOLS, name))
}

fn in_table<T: Copy>(table: &[(&str, T)], name: &str) -> T {
    named(table, name).unwrap_or_else(|| unreachable!("{name} is in the table"))
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// A decimal number, or a hexadecimal one after `0x`.
fn number(word: &str) -> Option<u16> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) || word.contains('+') {
        return None;
    }
    word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |hex| u16::from_str_radix(hex, 16).ok())
}

fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

fn host(word: &str) -> Option<Prefix> {
    word.parse().ok().map(Prefix::host)
}

fn prefix(word: &str) -> Option<Prefix> {
    let (address, len) = word.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let len = number(len).map(u32::from).filter(|&len| len <= Prefix::host(address).len)?;
    Some(Prefix { address, len })
}

/// The prefix without the bits behind its length, if some are set.
fn without_host_bits(prefix: &Prefix) -> Option<String> {
    let (bits, mask) = prefix.bits();
    let exact = || format!("{}/{}", address_of(prefix.address.is_ipv4(), bits & mask), prefix.len);
    (bits & !mask != 0).then(exact)
}

/// The words as a choice: `a, b or c`.
fn one_of<'a>(words: impl Iterator<Item = &'a &'a str>) -> String {
    let words: Vec<&str> = words.copied().collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
