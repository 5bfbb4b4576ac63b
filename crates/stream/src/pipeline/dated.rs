//! Files with dates in their names: a record goes to the file of its event time, in UTC.

use super::sink::{
    SinkChunk, SinkPart, SinkParts, SinkWriter, StreamSink, WritingFile, check_length, partition_path, refused,
};
use crate::event_time::EventTime;
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use std::{
    fs::{self, File},
    io::{Error, ErrorKind, Result},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files that one partition has open: each is a descriptor. One that is needed again is opened again.
const OPEN_MAX: usize = 32;

/// Bytes of a name, at most: it is part of the name of a row.
const NAME_BYTES_MAX: usize = 300;

/// The shortest time that a name tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePiece {
    Text(String),
    Year,
    Month,
    Day,
    DayOfYear,
    Hour,
    Minute,
    Second,
}

impl NamePiece {
    fn of(directive: char) -> Option<&'static [NamePiece]> {
        Some(match directive {
            'Y' => &[NamePiece::Year],
            'm' => &[NamePiece::Month],
            'd' => &[NamePiece::Day],
            'j' => &[NamePiece::DayOfYear],
            'H' => &[NamePiece::Hour],
            'M' => &[NamePiece::Minute],
            'S' => &[NamePiece::Second],
            _ => return None,
        })
    }

    fn unit(&self) -> Option<Unit> {
        Some(match self {
            NamePiece::Text(_) => return None,
            NamePiece::Year => Unit::Year,
            NamePiece::Month => Unit::Month,
            NamePiece::Day | NamePiece::DayOfYear => Unit::Day,
            NamePiece::Hour => Unit::Hour,
            NamePiece::Minute => Unit::Minute,
            NamePiece::Second => Unit::Second,
        })
    }
}

/// A name with a date: `top-%Y%m%d.jsonl`. `%Y` is the year, `%m` the month, `%d` the day, `%j` the day of the year, `%H`,
/// `%M` and `%S` are hour, minute and second, `%F` is `%Y-%m-%d`, and `%%` is `%`. All in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatedName {
    pieces: Vec<NamePiece>,
    unit: Unit,
}

impl DatedName {
    /// Reads a name; `None` if it has no date at all, and means itself (with `%` for `%%`).
    ///
    /// # Errors
    /// If it has a date that cannot be understood, or two times of which one is not over when the other begins would have
    /// the same name; the message is the reason.
    pub fn parse(text: &str) -> std::result::Result<Option<Self>, String> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text.chars());
        let mut add = |literal: &mut String, piece: NamePiece| {
            if !literal.is_empty() {
                pieces.push(NamePiece::Text(std::mem::take(literal)));
            }
            pieces.push(piece);
        };
        while let Some(char) = rest.next() {
            match (char, if char == '%' { rest.next() } else { None }) {
                ('%', Some('%')) => literal.push('%'),
                ('%', Some('F')) => {
                    for (at, piece) in [NamePiece::Year, NamePiece::Month, NamePiece::Day].into_iter().enumerate() {
                        literal.push_str(if at > 0 { "-" } else { "" });
                        add(&mut literal, piece);
                    }
                }
                ('%', Some(directive)) => match NamePiece::of(directive) {
                    Some(found) => found.iter().for_each(|piece| add(&mut literal, piece.clone())),
                    None => return Err(format!("`%{directive}` is no part of a date")),
                },
                ('%', None) => return Err(String::from("`%` at the end is no part of a date")),
                (char, _) => literal.push(char),
            }
        }
        if !literal.is_empty() {
            pieces.push(NamePiece::Text(literal));
        }
        let Some(unit) = pieces.iter().filter_map(NamePiece::unit).max() else { return Ok(None) };
        let has = |piece: NamePiece| pieces.contains(&piece);
        let needed = [
            (Unit::Year, has(NamePiece::Year), "%Y"),
            (Unit::Month, has(NamePiece::Month) || has(NamePiece::DayOfYear), "%m"),
            (Unit::Day, has(NamePiece::Day) || has(NamePiece::DayOfYear), "%d"),
            (Unit::Hour, has(NamePiece::Hour), "%H"),
            (Unit::Minute, has(NamePiece::Minute), "%M"),
        ];
        let missing: Vec<_> =
            needed.iter().filter(|(of, has, _)| *of <= unit && !has).map(|(.., what)| *what).collect();
        match missing[..] {
            [] => Ok(Some(DatedName { pieces, unit })),
            _ => Err(format!("the same name would come again later: it lacks {}", missing.join(" and "))),
        }
    }

    /// Whether both names are the same at some times. Names without a date are those of one time: see [`Self::is_name`].
    pub fn meets(&self, other: &DatedName) -> bool {
        let (one, other) = (self.shape(), other.shape());
        let fits = |(one, other): (&Option<char>, &Option<char>)| match (one, other) {
            (Some(one), Some(other)) => one == other,
            (Some(char), None) | (None, Some(char)) => char.is_ascii_digit(),
            (None, None) => true,
        };
        one.len() == other.len() && one.iter().zip(&other).all(fits)
    }

    /// Whether this file has the name at some time.
    pub fn is_name(&self, file: &str) -> bool {
        self.meets(&DatedName { pieces: vec![NamePiece::Text(file.to_owned())], unit: self.unit })
    }

    /// Returns the characters of the name, `None` for each digit of a date.
    fn shape(&self) -> Vec<Option<char>> {
        let mut shape = Vec::new();
        for piece in &self.pieces {
            match piece {
                NamePiece::Text(text) => shape.extend(text.chars().map(Some)),
                NamePiece::Year => shape.extend([None; 4]),
                NamePiece::DayOfYear => shape.extend([None; 3]),
                _ => shape.extend([None; 2]),
            }
        }
        shape
    }

    /// Returns the text that a name without a date means.
    pub fn unescaped(text: &str) -> String {
        text.replace("%%", "%")
    }

    /// Returns where the period of a time begins and ends, in milliseconds since 1970.
    fn period(&self, ms: i64, date: Date) -> std::result::Result<(i64, i64), jiff::Error> {
        let fixed = |unit_ms: i64| {
            let start = ms.div_euclid(unit_ms) * unit_ms;
            (start, start + unit_ms)
        };
        let midnight = |date: Date| -> std::result::Result<i64, jiff::Error> {
            Ok(date.to_zoned(TimeZone::UTC)?.timestamp().as_millisecond())
        };
        Ok(match self.unit {
            Unit::Second => fixed(1000),
            Unit::Minute => fixed(60_000),
            Unit::Hour => fixed(3_600_000),
            Unit::Day => fixed(86_400_000),
            Unit::Month => {
                let first = date.first_of_month();
                (midnight(first)?, midnight(first.checked_add(1.month())?)?)
            }
            Unit::Year => {
                let first = date.first_of_year();
                (midnight(first)?, midnight(first.checked_add(1.year())?)?)
            }
        })
    }

    fn name(&self, at: jiff::civil::DateTime) -> String {
        let mut name = String::new();
        for piece in &self.pieces {
            match piece {
                NamePiece::Text(text) => name.push_str(text),
                NamePiece::Year => name.push_str(&format!("{:04}", at.year())),
                NamePiece::DayOfYear => name.push_str(&format!("{:03}", at.day_of_year())),
                NamePiece::Month => name.push_str(&format!("{:02}", at.month())),
                NamePiece::Day => name.push_str(&format!("{:02}", at.day())),
                NamePiece::Hour => name.push_str(&format!("{:02}", at.hour())),
                NamePiece::Minute => name.push_str(&format!("{:02}", at.minute())),
                NamePiece::Second => name.push_str(&format!("{:02}", at.second())),
            }
        }
        name
    }
}

impl SinkParts for DatedName {
    fn of(&self, time: EventTime) -> std::result::Result<SinkPart, String> {
        let none =
            |_| String::from("its record has no date: the result of a window over all time, or a time out of range");
        let at = Timestamp::from_millisecond(time.0).map_err(none)?.to_zoned(TimeZone::UTC).datetime();
        let (start, end) = self.period(time.0, at.date()).map_err(none)?;
        let name = self.name(at);
        match name.len() <= NAME_BYTES_MAX {
            true => Ok(SinkPart { name, start: EventTime(start), end: EventTime(end) }),
            false => Err(format!("the name of its file has more than {NAME_BYTES_MAX} bytes")),
        }
    }
}

/// Files with dates in their names, each exactly once as that of a [`FileSink`](super::sink::FileSink), also when records
/// of several days come mixed. Directories in the name are made.
///
/// When the watermark has passed the time of a file, it is *sealed*: synced, closed, and from then on read-only, so that
/// other programs see that it is complete. Only a late record makes it grow again. A sealed file may be moved away or
/// removed; what comes late begins another one in its place.
#[derive(Clone, Debug)]
pub struct DatedFileSink {
    base: PathBuf,
    name: DatedName,
}

impl DatedFileSink {
    /// Returns the sink that writes files of such names in a directory.
    pub fn new(base: impl Into<PathBuf>, name: DatedName) -> Self {
        DatedFileSink { base: base.into(), name }
    }
}

impl StreamSink for DatedFileSink {
    fn open(&self, partition: u16, of: u16) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(WritingDated { base: self.base.clone(), partition, of, open: Vec::new() }))
    }

    fn parts(&self) -> Option<Arc<dyn SinkParts>> {
        Some(Arc::new(self.name.clone()))
    }
}

struct WritingDated {
    base: PathBuf,
    partition: u16,
    of: u16,
    /// The files that are open, the last one used last.
    open: Vec<(String, WritingFile)>,
}

impl WritingDated {
    fn path(&self, part: &str) -> PathBuf {
        partition_path(&self.base.join(part), self.partition, self.of)
    }

    fn file(&mut self, part: &str) -> Result<&mut WritingFile> {
        let file = match self.open.iter().position(|(open, _)| open == part) {
            Some(at) => self.open.remove(at),
            None => (part.to_owned(), open(self.path(part))?),
        };
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(file);
        Ok(&mut self.open.last_mut().expect("it was put there").1)
    }
}

/// Opens a file to be written, with its directories; a sealed one is unsealed.
fn open(path: PathBuf) -> Result<WritingFile> {
    let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", path.display()));
    match path.metadata() {
        Ok(metadata) if metadata.permissions().readonly() => set_writable(&path, &metadata, true).map_err(named)?,
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_directory(directory_of(&path)).map_err(named)?;
            let file = WritingFile::open(path.clone())?;
            sync_directory(directory_of(&path)).map_err(named)?;
            return Ok(file);
        }
        Err(error) => return Err(named(error)),
    }
    WritingFile::open(path)
}

/// Makes a directory, and those above it.
fn make_directory(directory: &Path) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    make_directory(directory_of(directory))?;
    match fs::create_dir(directory) {
        // Another partition was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => {}
        made => made?,
    }
    sync_directory(directory_of(directory))
}

/// Lets the names in a directory outlive a power failure, as the bytes of its files do.
fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory)?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn set_writable(path: &Path, metadata: &fs::Metadata, is_writable: bool) -> Result<()> {
    let mode = metadata.permissions().mode();
    let mode = if is_writable { mode | 0o200 } else { mode & !0o222 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

impl SinkWriter for WritingDated {
    fn resume(&mut self, part: &str, written: u64, committed: u64) -> Result<()> {
        // Without a part it is the place before all parts.
        if part.is_empty() {
            return Ok(());
        }
        let path = self.path(part);
        match path.metadata() {
            Ok(metadata) if metadata.is_file() => check_length(&path, metadata.len(), written, committed),
            Ok(_) => Err(refused(&path, "no file of records")),
            Err(error) if error.kind() == ErrorKind::NotFound && written > 0 => {
                Err(Error::other(format!("{} is gone, though this stream is still writing it", path.display())))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }

    fn write(&mut self, chunk: &SinkChunk) -> Result<()> {
        self.file(&chunk.part)?.write(chunk)
    }

    fn seal(&mut self, part: &str) -> Result<()> {
        self.open.retain(|(open, _)| open != part);
        let path = self.path(part);
        match path.metadata() {
            Ok(metadata) => set_writable(&path, &metadata, false),
            // It was moved away as soon as its last byte was there.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    fn is_gone(&mut self, part: &str) -> Result<bool> {
        match self.path(part).metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            found => found.map(|_| false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(name: &str, ms: i64) -> SinkPart {
        DatedName::parse(name).unwrap().unwrap().of(EventTime(ms)).unwrap()
    }

    #[test]
    fn names_have_the_date_of_the_record_in_utc() {
        // 2026-02-28T23:59:58.5Z
        let ms = 1_772_323_198_500;
        for (name, expected) in [
            ("top-%Y%m%d.jsonl", "top-20260228.jsonl"),
            ("%Y/%m/top.jsonl", "2026/02/top.jsonl"),
            ("%F_%H%M%S", "2026-02-28_235958"),
            ("%Y-%j", "2026-059"),
            ("100%% %Y", "100% 2026"),
        ] {
            assert_eq!(part(name, ms).name, expected);
        }
        assert_eq!(part("%Y%m%d", -1).name, "19691231", "before 1970 too");
        assert_eq!(DatedName::parse("plain 100%%"), Ok(None));
        assert_eq!(DatedName::unescaped("plain 100%%"), "plain 100%");
    }

    #[test]
    fn names_that_come_again_or_are_no_dates_are_refused() {
        for (name, why) in [
            ("%d.jsonl", "it lacks %Y and %m"),
            ("%m%d", "it lacks %Y"),
            ("%Y-%H", "it lacks %m and %d"),
            ("%Y%m%d%M", "it lacks %H"),
            ("%Y%Q", "`%Q` is no part of a date"),
            ("x%", "`%` at the end"),
        ] {
            let found = DatedName::parse(name).unwrap_err();
            assert!(found.contains(why), "{name}: {found}");
        }
        let of = |ms| DatedName::parse("%Y").unwrap().unwrap().of(EventTime(ms));
        assert!(of(i64::MAX - 1).unwrap_err().contains("no date"));
        assert!(of(i64::MIN).is_err());
    }

    proptest! {
        #[test]
        fn the_times_of_a_part_are_those_with_its_name(ms in -4_000_000_000_000i64..40_000_000_000_000, at in 0usize..6) {
            let name = ["%Y", "%Y%m", "%Y%j", "%F%H", "%F%H%M", "%F%H%M%S"][at];
            let own = part(name, ms);
            prop_assert!(own.start.0 <= ms && ms < own.end.0);
            prop_assert_eq!(&part(name, own.start.0), &own);
            prop_assert_eq!(&part(name, own.end.0 - 1), &own);
            prop_assert_ne!(part(name, own.start.0 - 1).name, own.name.clone());
            prop_assert_ne!(part(name, own.end.0).name, own.name);
        }
    }
}
