//! The window of a socket's incomplete sends.
//!
//! The kernel numbers zero-copy sends with 32 bits that wrap, and completes ranges of numbers, in any order.
//! The window numbers them with 64 bits, so no cookie is used twice. A kernel number means the send in the
//! window with these lower 32 bits.

/// The most sends from the oldest incomplete one to the next.
pub(crate) const SENDS: u64 = 4096;

/// The sends from the oldest incomplete one on.
#[derive(Debug)]
pub(crate) struct Window {
    /// All sends before this one are complete.
    oldest: u64,
    next: u64,
    /// A bit for each send from `oldest` to `next`, at its number modulo [`SENDS`]: whether it is complete.
    over: Box<[u64]>,
}

impl Window {
    pub(crate) fn starting_at(next: u64) -> Self {
        Self { oldest: next, next, over: vec![0; SENDS as usize / 64].into() }
    }

    /// The number for the next send, if there is room for one more.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        let cookie = self.next;
        if cookie - self.oldest == SENDS {
            return None;
        }
        self.set(cookie, false);
        self.next += 1;
        Some(cookie)
    }

    /// Undoes `begin` after a failed send: its number is used again, unless the kernel has completed it, and
    /// therefore counted it.
    pub(crate) fn take_back(&mut self) {
        if self.is_out(self.next - 1) {
            self.next -= 1;
        }
    }

    /// Marks a range as complete, and returns how many sends of this window it completed. Numbers outside the
    /// window are ignored.
    pub(crate) fn complete(&mut self, first: u32, last: u32) -> u64 {
        let sends = i64::from(last.wrapping_sub(first)) + 1;
        // The kernel's numbers are the lower halves of ours, and the window is far smaller than their range.
        let begin = i64::from(first.wrapping_sub(self.oldest as u32) as i32);
        let end = (begin + sends).min((self.next - self.oldest) as i64);
        let mut done = 0;
        let oldest = self.oldest;
        for cookie in (begin.max(0)..end).map(|at| oldest + at as u64) {
            done += u64::from(!self.is_over(cookie));
            self.set(cookie, true);
        }
        while self.oldest < self.next && self.is_over(self.oldest) {
            self.oldest += 1;
        }
        done
    }

    /// Whether this send is incomplete.
    pub(crate) fn is_out(&self, cookie: u64) -> bool {
        (self.oldest..self.next).contains(&cookie) && !self.is_over(cookie)
    }

    /// Whether this send, or one before it, is incomplete.
    pub(crate) fn is_out_up_to(&self, cookie: u64) -> bool {
        self.oldest <= cookie && self.oldest < self.next
    }

    fn is_over(&self, cookie: u64) -> bool {
        self.over[(cookie % SENDS / 64) as usize] >> (cookie % 64) & 1 == 1
    }

    fn set(&mut self, cookie: u64, over: bool) {
        let word = &mut self.over[(cookie % SENDS / 64) as usize];
        *word = *word & !(1 << (cookie % 64)) | u64::from(over) << (cookie % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(from: u64, sends: u64) -> Window {
        let mut window = Window::starting_at(from);
        (from..from + sends).for_each(|cookie| assert_eq!(window.begin(), Some(cookie)));
        window
    }

    #[test]
    fn ranges_come_in_any_order_and_merged() {
        let mut window = begun(0, 10);
        assert_eq!(window.complete(4, 6), 3);
        let out = |window: &Window| (0..10).filter(|&cookie| window.is_out(cookie)).collect::<Vec<_>>();
        assert_eq!(out(&window), [0, 1, 2, 3, 7, 8, 9]);
        assert!((0..10).all(|cookie| window.is_out_up_to(cookie)), "the first is out");
        assert_eq!((window.complete(0, 1), window.complete(0, 5)), (2, 2), "each is counted once");
        assert_eq!(out(&window), [7, 8, 9]);
        assert!(!window.is_out_up_to(6) && window.is_out_up_to(7));
        assert_eq!(window.complete(7, 9), 3);
        assert!(!window.is_out_up_to(9));
    }

    #[test]
    fn the_kernels_numbers_wrap_and_ours_do_not() {
        let from = (1_u64 << 33) - 3;
        let mut window = begun(from, 6);
        assert_eq!(window.complete(u32::MAX, 1), 3, "the third to the fifth");
        let out: Vec<_> = (from..from + 6).filter(|&cookie| window.is_out(cookie)).collect();
        assert_eq!(out, [from, from + 1, from + 5]);
        assert_eq!(window.complete(from as u32, from as u32 + 1), 2);
        assert_eq!(window.complete(2, 2), 1);
        assert!(!window.is_out_up_to(from + 5));
    }

    #[test]
    fn numbers_outside_of_the_window_say_nothing() {
        let mut window = begun(100, 4);
        assert_eq!(window.complete(104, 200), 0, "not sent yet");
        assert_eq!(window.complete(0, 99), 0, "over before");
        assert_eq!(window.complete(102, 1 << 31), 2, "as far as there are any");
        assert!(window.is_out(100) && window.is_out(101) && !window.is_out(102));
        assert!(!window.is_out(4), "long over");
        assert!(!window.is_out(104), "never sent");
    }

    #[test]
    fn it_is_bounded_and_what_was_taken_back_comes_again() {
        let mut window = begun(7, SENDS);
        assert_eq!(window.begin(), None);
        assert_eq!(window.complete(8, 8), 1);
        assert_eq!(window.begin(), None, "the oldest is out");
        assert_eq!(window.complete(7, 7), 1);
        assert_eq!(window.begin(), Some(7 + SENDS));
        window.take_back();
        assert_eq!(
            (window.begin(), window.begin(), window.begin()),
            (Some(7 + SENDS), Some(8 + SENDS), None)
        );
        assert!(window.is_out(7 + SENDS) && window.is_out(8 + SENDS));
    }
}
