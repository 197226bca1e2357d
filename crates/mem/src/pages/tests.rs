//! Tests of the books of pages.

use super::*;

/// Taking, publishing, retiring and freeing in any order keeps the state correct, and in the end all is free.
#[test]
fn books_balance() {
    let classes = Classes::new(1024);
    let mut pages = Pages::new(&Memory::new(0).unwrap(), &classes, 8).unwrap();
    let mut taken = Vec::new();
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let class = (state >> 33) as usize % 4;
        if (state >> 60) < 9 {
            if let Some(id) = pages.take(class as u8) {
                pages.publish(id);
                taken.push(id);
            }
        } else if !taken.is_empty() {
            let id = taken.swap_remove((state >> 40) as usize % taken.len());
            pages.retire(id);
            pages.free(id);
        }
    }
    pages.validate().unwrap();
    for id in taken {
        pages.retire(id);
        pages.free(id);
    }
    pages.validate().unwrap();
    assert_eq!(pages.page_use(), PageUse { total: 8, free: 8, ..PageUse::default() });
    let opened = (0..4).map(|class| classes.opening(class)).sum::<u64>();
    assert_eq!(pages.live_charge(), opened, "what was used once stays charged");
}

/// A sparse class frees a page once its live slots were moved.
#[test]
fn sparse_class_gives_a_page_back() {
    let classes = Classes::new(1024);
    let mut pages = Pages::new(&Memory::new(0).unwrap(), &classes, 4).unwrap();
    let ids: Vec<u32> = (0..256).map(|_| pages.take(0).unwrap()).collect();
    ids.iter().for_each(|&id| pages.publish(id));
    assert_eq!(pages.take(1), None, "every page serves class 0");
    for &id in ids.iter().step_by(2) {
        pages.retire(id);
        pages.free(id);
    }
    while let Some(id) = pages.next_to_move(true) {
        let class = pages.class_of(id);
        let copy = pages.take(class).unwrap();
        pages.publish(copy);
        pages.retire(id);
        pages.free(id);
        pages.validate().unwrap();
    }
    assert_eq!((pages.page_use().free, pages.page_use().owned_bytes), (2, 0));
    let id = pages.take(1).unwrap();
    assert_eq!(pages.page_use().owned_bytes, pages.bytes_of(id));
    pages.give_back(id);
    assert_eq!(pages.page_use().owned_bytes, 0);
}

/// A draining page's free slots can be taken for its class only; then it serves again.
#[test]
fn draining_ends_where_slots_run_out() {
    let classes = Classes::new(1024);
    let mut pages = Pages::new(&Memory::new(0).unwrap(), &classes, 2).unwrap();
    let ids: Vec<u32> = std::iter::from_fn(|| pages.take(0)).collect();
    ids.iter().for_each(|&id| pages.publish(id));
    for &id in ids.iter().step_by(2) {
        pages.retire(id);
        pages.free(id);
    }
    assert_eq!(pages.take_draining(0), None, "no page is drained");
    let moved = pages.next_to_move(true).unwrap();
    pages.retire(moved);
    assert_eq!(pages.page_use().draining, 1);
    let rest = |pages: &mut Pages| std::iter::from_fn(|| pages.take(0)).count();
    assert_eq!(rest(&mut pages), ids.len() / 4, "the other page's");
    assert_eq!(pages.take_draining(1), None);
    assert!(pages.take_draining(0).is_some());
    assert_eq!(pages.page_use().draining, 0);
    assert_eq!(1 + rest(&mut pages), ids.len() / 4);
    assert_eq!(pages.next_to_move(false), None);
    pages.validate().unwrap();
}
