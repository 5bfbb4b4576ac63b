return now_ms(KEYS[1], ARGV[1])
