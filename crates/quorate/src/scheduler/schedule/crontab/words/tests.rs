use super::words;

/// Lines of both dialects and their meanings.
const TABLE: &[(&str, &str)] = &[
    // --- times of a day
    ("0 3 * * *", "at 03:00 every day"),
    ("5,35 9 * * *", "at 09:05 and 09:35 every day"),
    ("0 9,12,17 * * *", "at 09:00, 12:00 and 17:00 every day"),
    ("15 30 4 * * *", "at 04:30:15 every day"),
    ("0 1,2,5,9,17,22 * * *", "at 01:00, 02:00, 05:00, 09:00, 17:00 and 22:00 every day"),
    // --- words
    ("@hourly", "at minute 0 of every hour"),
    ("@daily", "at 00:00 every day"),
    ("@midnight", "at 00:00 every day"),
    ("@weekly", "at 00:00 on Sunday"),
    ("@monthly", "at 00:00 on day 1 of the month"),
    ("@yearly", "at 00:00 on day 1 of the month, in January"),
    ("@annually", "at 00:00 on day 1 of the month, in January"),
    // --- hours
    ("5 * * * *", "at minute 5 of every hour"),
    ("30 5 * * * *", "at minute 5 and second 30 of every hour"),
    ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
    ("5 */2 * * *", "every 2 hours from 00:05 to 22:05"),
    ("0 */5 * * *", "every 5 hours from 00:00 to 20:00"),
    // --- minutes
    ("* * * * *", "every minute"),
    ("*/15 * * * *", "every 15 minutes"),
    ("*/30 * * * *", "every 30 minutes"),
    ("3-59/15 * * * *", "every 15 minutes from minute 3 of every hour"),
    ("*/7 * * * *", "every 7 minutes from minute 0 to minute 56 of every hour"),
    ("0-29 * * * *", "at minutes 0 to 29 of every hour"),
    ("1,2,9-12 * * * *", "at minutes 1, 2 and 9 to 12 of every hour"),
    ("*/5 14 * * *", "every 5 minutes, from 14:00 to 14:59"),
    ("*/10 9-17 * * mon-fri", "every 10 minutes, from 09:00 to 17:59, from Monday to Friday"),
    ("*/20 */6 * * *", "every 20 minutes, in every 6th hour from 0 to 18"),
    ("*/20 1,5 * * *", "every 20 minutes, in the hours 1 and 5"),
    // --- seconds
    ("* * * * * *", "every second"),
    ("*/10 * * * * *", "every 10 seconds"),
    ("30 * * * * *", "at second 30 of every minute"),
    ("5,7,20 * * * * *", "at seconds 5, 7 and 20 of every minute"),
    ("30 */5 * * * *", "at second 30, in every 5th minute from minute 0 to minute 55 of every hour"),
    ("*/10 5 * * * *", "every 10 seconds, in minute 5 of every hour"),
    ("*/10 0-29 8 * * *", "every 10 seconds, in the minutes 0 to 29, from 08:00 to 08:59"),
    ("0 0/20 * * * *", "every 20 minutes"),
    // --- days of the month
    ("0 3 1,15 * *", "at 03:00 on days 1 and 15 of the month"),
    ("0 3 1-7 * *", "at 03:00 on days 1 to 7 of the month"),
    ("0 3 */2 * *", "at 03:00 on every 2nd day from day 1 to day 31 of the month"),
    ("0 3 L * *", "at 03:00 on the last day of the month"),
    ("0 3 L-3 * *", "at 03:00 on the day 3 days before the last day of the month"),
    ("0 3 L-1 * *", "at 03:00 on the day 1 day before the last day of the month"),
    ("0 3 LW * *", "at 03:00 on the last working day (Monday to Friday) of the month"),
    ("0 3 15W * *", "at 03:00 on the working day (Monday to Friday) nearest to day 15 of the month"),
    ("0 3 1,L * *", "at 03:00 on day 1 and the last day of the month"),
    // --- days of the week; in the longer dialect Sunday is 1
    ("0 3 * * 1-5", "at 03:00 from Monday to Friday"),
    ("0 3 * * fri-sun", "at 03:00 from Friday to Sunday"),
    ("0 3 * * 0,7", "at 03:00 on Sunday"),
    ("0 3 * * sat,sun", "at 03:00 on Saturday and Sunday"),
    ("0 0 3 * * 2", "at 03:00 on Monday"),
    ("0 0 3 ? * mon,wed", "at 03:00 on Monday and Wednesday"),
    ("0 3 * * fri#2", "at 03:00 on the second Friday of the month"),
    ("0 3 * * friL", "at 03:00 on the last Friday of the month"),
    ("0 3 * * mon,fri#5", "at 03:00 on Monday and on the fifth Friday of the month"),
    // --- both day fields
    ("0 3 13 * fri", "at 03:00 on day 13 of the month and also on Friday"),
    ("0 3 1-31 * fri", "at 03:00 every day"),
    ("0 3 */2 * fri", "at 03:00 on every 2nd day from day 1 to day 31 of the month, but only on Friday"),
    ("0 0 3 13 * fri", "at 03:00 on day 13 of the month, but only on Friday"),
    // --- months and years
    ("0 3 * 6 *", "at 03:00 every day, in June"),
    ("0 3 1 jan,jul *", "at 03:00 on day 1 of the month, in January and July"),
    ("0 3 1 */3 *", "at 03:00 on day 1 of the month, in January, April, July and October"),
    ("*/5 * * mar-may *", "every 5 minutes, from March to May"),
    ("0 0 0 1 1 * 2027", "at 00:00 on day 1 of the month, in January, in 2027"),
    ("0 0 0 1 1 * 2027-2030", "at 00:00 on day 1 of the month, in January, from 2027 to 2030"),
    (
        "0 0 0 1 1 * 2028-2048/4",
        "at 00:00 on day 1 of the month, in January, in every 4th year from 2028 to 2048",
    ),
];

#[test]
fn each_line_has_its_words() {
    for (line, expected) in TABLE {
        assert_eq!(words(line).as_deref(), Some(*expected), "{line}");
    }
}

#[test]
fn an_invalid_line_has_no_words() {
    for line in ["", "0 3 * *", "61 3 * * *", "@reboot", "0 3 32W * *", "0 3 * * fri#6", "0 3 * foo *"] {
        assert_eq!(words(line), None, "{line}");
    }
}
