//! The elements of a list in memory. Small values stand side by side in one buffer, so that a list of millions of
//! numbers takes a few bytes for each; any other element stands for itself.

use super::Data;
use bytes::Bytes;
use std::{borrow::Cow, fmt, sync::Arc, vec};

/// The elements of a list, in order. Cloning a list of small values shares them.
#[derive(Clone)]
pub struct DataList(Elements);

#[derive(Clone)]
enum Elements {
    /// All elements are small values, or none.
    Packed(Arc<Packed>),
    /// Elements of any kind.
    Apart(Vec<Data>),
}

/// Small values, side by side.
#[derive(Default)]
struct Packed {
    bytes: Bytes,
    /// The end of each element's bytes; [`NO_VALUE`] is added for an element without a value.
    ends: Vec<u32>,
}

/// Marks the end of an element without a value. Also the limit of the bytes of a packed list.
const NO_VALUE: u32 = 1 << 31;

/// Bytes of a value that is copied into the common buffer; a larger one costs little more on its own.
const SMALL_BYTES_MAX: usize = 128;

const _: () = assert!(size_of::<DataList>() <= 24, "a list is no larger than the bytes of one value");

impl Packed {
    fn get(&self, at: usize) -> Data {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] & !NO_VALUE);
        match self.ends[at] {
            end if end & NO_VALUE != 0 => Data::None,
            end => Data::Bytes(self.bytes.slice(start as usize..end as usize)),
        }
    }
}

impl DataList {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Elements::Packed(packed) => packed.ends.len(),
            Elements::Apart(elements) => elements.len(),
        }
    }

    /// The list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    ///
    /// # Panics
    /// If the list is shorter.
    pub fn get(&self, at: usize) -> Cow<'_, Data> {
        match &self.0 {
            Elements::Packed(packed) => Cow::Owned(packed.get(at)),
            Elements::Apart(elements) => Cow::Borrowed(&elements[at]),
        }
    }

    /// The elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Cow<'_, Data>> + ExactSizeIterator + Send + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    /// The elements that may be or hold files: none of a list of small values, else all.
    pub fn with_files_mut(&mut self) -> &mut [Data] {
        match &mut self.0 {
            Elements::Packed(_) => &mut [],
            Elements::Apart(elements) => elements,
        }
    }

    /// The elements that may be or hold files, as [`DataList::with_files_mut`].
    pub fn with_files(&self) -> &[Data] {
        match &self.0 {
            Elements::Packed(_) => &[],
            Elements::Apart(elements) => elements,
        }
    }
}

impl PartialEq for DataList {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for DataList {}

impl fmt::Debug for DataList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<Vec<Data>> for DataList {
    fn from(elements: Vec<Data>) -> Self {
        elements.into_iter().collect()
    }
}

impl FromIterator<Data> for DataList {
    fn from_iter<I: IntoIterator<Item = Data>>(elements: I) -> Self {
        let elements = elements.into_iter();
        let mut list = ElementBuilder::with_capacity(elements.size_hint().0);
        elements.for_each(|element| list.push(element));
        list.finish()
    }
}

impl IntoIterator for DataList {
    type Item = Data;
    type IntoIter = IntoElements;

    fn into_iter(self) -> IntoElements {
        match self.0 {
            Elements::Packed(packed) => IntoElements { packed, at: 0, apart: vec![].into_iter() },
            Elements::Apart(elements) => IntoElements { packed: Arc::default(), at: 0, apart: elements.into_iter() },
        }
    }
}

/// The elements of a list, one by one.
pub struct IntoElements {
    packed: Arc<Packed>,
    at: usize,
    apart: vec::IntoIter<Data>,
}

impl Iterator for IntoElements {
    type Item = Data;

    fn next(&mut self) -> Option<Data> {
        if self.at < self.packed.ends.len() {
            self.at += 1;
            return Some(self.packed.get(self.at - 1));
        }
        self.apart.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.packed.ends.len() - self.at + self.apart.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for IntoElements {}

/// Builds a list: packed until an element does not allow it.
pub(crate) struct ElementBuilder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    apart: Option<Vec<Data>>,
}

impl ElementBuilder {
    pub(crate) fn with_capacity(elements: usize) -> Self {
        ElementBuilder { bytes: Vec::new(), ends: Vec::with_capacity(elements), apart: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.apart.as_ref().map_or(self.ends.len(), Vec::len)
    }

    pub(crate) fn push(&mut self, element: Data) {
        if let Some(apart) = &mut self.apart {
            return apart.push(element);
        }
        match element {
            Data::None => self.ends.push(self.bytes.len() as u32 | NO_VALUE),
            Data::Bytes(bytes) if self.has_room(&bytes) => self.push_packed(&bytes),
            element => self.push_apart(element),
        }
    }

    /// Adds a value by its bytes.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        match self.has_room(bytes) {
            true => self.push_packed(bytes),
            false => self.push(Data::Bytes(Bytes::copy_from_slice(bytes))),
        }
    }

    fn has_room(&self, bytes: &[u8]) -> bool {
        let is_small = bytes.len() <= SMALL_BYTES_MAX;
        self.apart.is_none() && is_small && self.bytes.len() + bytes.len() < NO_VALUE as usize
    }

    fn push_packed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u32);
    }

    fn push_apart(&mut self, element: Data) {
        let packed = self.pack();
        let mut apart = Vec::with_capacity(packed.ends.capacity());
        apart.extend((0..packed.ends.len()).map(|at| packed.get(at)));
        apart.push(element);
        self.apart = Some(apart);
    }

    fn pack(&mut self) -> Packed {
        Packed { bytes: std::mem::take(&mut self.bytes).into(), ends: std::mem::take(&mut self.ends) }
    }

    pub(crate) fn finish(mut self) -> DataList {
        DataList(match self.apart.take() {
            Some(elements) => Elements::Apart(elements),
            None => {
                self.ends.shrink_to_fit();
                Elements::Packed(Arc::new(self.pack()))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::FileData;

    fn value(bytes: impl AsRef<[u8]>) -> Data {
        Data::Bytes(Bytes::copy_from_slice(bytes.as_ref()))
    }

    #[test]
    fn lists_give_back_their_elements_whatever_they_are_made_of() {
        let file = || Data::from(FileData::new("f", "/d/f"));
        let lists: [Vec<Data>; 7] = [
            vec![],
            vec![value([]), value("a"), Data::None, value([]), Data::None, value("bc")],
            vec![value([7; SMALL_BYTES_MAX]), value([8; SMALL_BYTES_MAX])],
            vec![value("a"), Data::None, value([7; SMALL_BYTES_MAX + 1]), value("b"), Data::None],
            vec![value("a"), Data::None, file(), value("b"), file()],
            vec![Data::List(vec![value("a")].into()), Data::List(vec![].into()), value("b")],
            vec![Data::None, Data::None],
        ];
        for expected in lists {
            let list = DataList::from(expected.clone());
            assert_eq!(list.len(), expected.len());
            assert_eq!(list.iter().map(Cow::into_owned).collect::<Vec<_>>(), expected);
            assert_eq!(
                list.iter().rev().map(Cow::into_owned).collect::<DataList>().into_iter().count(),
                expected.len()
            );
            assert_eq!(list.clone().into_iter().collect::<Vec<_>>(), expected);
            let files = |data: &&Data| matches!(data, Data::File(_));
            assert_eq!(list.with_files().iter().filter(files).count(), expected.iter().filter(files).count());
            assert_eq!(list, expected.into());
        }
        assert_ne!(DataList::from(vec![Data::None]), vec![value([])].into());
    }

    #[test]
    fn elements_of_a_list_of_numbers_take_their_bytes_and_four_more_and_a_clone_takes_none() {
        let list: DataList = (0..1000_u32).map(|n| value(n.to_be_bytes())).collect();
        let Elements::Packed(packed) = &list.0 else { panic!("small values are packed") };
        assert_eq!((packed.bytes.len(), packed.ends.capacity() * size_of::<u32>()), (4000, 4000));
        let copy = list.clone();
        let Elements::Packed(copied) = &copy.0 else { panic!("small values are packed") };
        assert!(Arc::ptr_eq(packed, copied), "a clone shares the elements");
    }
}
