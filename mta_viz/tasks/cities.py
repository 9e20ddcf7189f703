"""The cities and numbers of the needle task, and which of them training never sees.

None of the cities is a town of the grammar, so a haystack never speaks of a needle's city.
"""

from mta_viz.tasks.grammar.topic import words

KNOWN_CITIES = words(
    "Accra; Addis Ababa; Algiers; Amman; Amsterdam; Ankara; Athens; Atlanta; Auckland; Baghdad; Baku; "
    "Baltimore; Bangkok; Barcelona; Beijing; Beirut; Belfast; Belgrade; Berlin; Bilbao; Birmingham; "
    "Bogota; Bombay; Boston; Brasilia; Bratislava; Brisbane; Brussels; Bucharest; Budapest; Buenos "
    "Aires; Buffalo; Cairo; Calcutta; Calgary; Canberra; Cape Town; Caracas; Casablanca; Charleston; "
    "Chicago; Cincinnati; Cleveland; Cologne; Colombo; Columbus; Copenhagen; Dakar; Dallas; Damascus; "
    "Delhi; Denver; Detroit; Dhaka; Doha; Dubai; Dublin; Edinburgh; Florence; Frankfurt; Gdansk; "
    "Geneva; Genoa; Glasgow; Guadalajara; Guatemala City; Hamburg; Hanoi; Havana; Helsinki; Hiroshima; "
    "Hong Kong; Honolulu; Houston; Istanbul; Jakarta; Jerusalem; Johannesburg; Kabul; Kansas City; "
    "Karachi; Kathmandu; Khartoum; Kiev; Kingston; Krakow; Kuala Lumpur; Kyoto; La Paz; Lagos; Lahore; "
    "Las Vegas; Leipzig; Lima; Lisbon; Liverpool; London; Los Angeles; Lyon; Madrid; Malaga; "
    "Manchester; Manila; Marseille; Melbourne; Memphis; Mexico City; Miami; Milan; Minneapolis; "
    "Monaco; Montreal; Moscow; Mumbai; Munich; Nairobi; Naples; Nashville; New Delhi; New Orleans; New "
    "York; Nice; Nicosia; Oslo; Ottawa; Palermo; Panama City; Paris; Perth; Philadelphia; Phoenix; "
    "Pittsburgh; Portland; Prague; Quebec; Quito; Riga; Rio de Janeiro; Rome; Rotterdam; San Diego; "
    "San Francisco; San Juan; Santiago; Sao Paulo; Seattle; Seoul; Seville; Shanghai; Singapore; "
    "Stockholm; Stuttgart; Sydney; Taipei; Tallinn; Tehran; Tel Aviv; Tokyo; Toronto; Toulouse; "
    "Tripoli; Tunis; Turin; Valencia; Vancouver; Venice; Vienna; Vilnius; Warsaw; Washington; "
    "Wellington; Winnipeg; Zagreb; Zurich"
)
HELD_OUT_CITIES = words(
    "Abu Dhabi; Albuquerque; Asmara; Austin; Banja Luka; Cebu City; Chisinau; Dar es Salaam; Des "
    "Moines; Dusseldorf; Fukuoka; Gothenburg; Hannover; Harare; Ho Chi Minh City; Islamabad; Kampala; "
    "Kigali; Las Palmas; Ljubljana; Lusaka; Maputo; Medellin; Minsk; Monterrey; Montevideo; Nagoya; "
    "Osaka; Port Moresby; Porto; Pretoria; Reykjavik; Riyadh; Salt Lake City; San Antonio; San "
    "Salvador; Sapporo; Skopje; Tashkent; Tbilisi; Tirana; Ulaanbaatar; Yerevan; Windhoek"
)
CITIES = KNOWN_CITIES + HELD_OUT_CITIES


def is_held_out(number: int) -> bool:
    """Whether training never sees `number` as an answer: 100 of 1..999, spread over all digits."""
    # 7919 has no common factor with 1000, so number -> (7919 * number) % 1000 only reorders 0..999
    return (7919 * number + 150) % 1000 < 100


NUMBERS = tuple(range(1, 1000))
KNOWN_NUMBERS = tuple(number for number in NUMBERS if not is_held_out(number))
HELD_OUT_NUMBERS = tuple(number for number in NUMBERS if is_held_out(number))
