"""Words every paragraph of the grammar may use, whatever its topic: names, towns, times, adjectives."""

from mta_viz.tasks.grammar.topic import words

WOMEN = words(
    "Agnes; Alma; Beatrice; Bridget; Cecily; Clara; Cora; Daphne; Delia; Dora; Edith; Elsa; Esther; "
    "Fatima; Flora; Freya; Greta; Hannah; Helga; Ida; Ingrid; Irene; Isolde; Judith; Karin; Leila; "
    "Lotte; Lydia; Mabel; Marta; Matilda; Mina; Nadia; Nora; Olga; Petra; Phoebe; Priya; Rosa; Ruth; "
    "Sabine; Selma; Sofia; Tamar; Thea; Ursula; Vera; Wanda; Yasmin; Zelda"
)
MEN = words(
    "Albert; Anton; Arthur; Basil; Bruno; Caspar; Cyril; Dmitri; Edgar; Elias; Emil; Felix; Frederick; "
    "George; Gilbert; Gustav; Harold; Hugo; Ibrahim; Ivan; Jasper; Joseph; Julian; Karl; Konrad; Leon; "
    "Linus; Ludwig; Magnus; Martin; Nikolai; Oscar; Otto; Pavel; Philip; Quentin; Ralph; Rashid; "
    "Rupert; Samuel; Simon; Stefan; Theodore; Tobias; Ulrich; Victor; Walter; Wilfred; Yusuf; Zoltan"
)
TOWNS = words(
    "Aachen; Aberdeen; Alicante; Annecy; Antwerp; Arles; Augsburg; Avignon; Bamberg; Bath; Bergamo; "
    "Bologna; Bremen; Bristol; Bruges; Burgos; Cagliari; Cambridge; Cardiff; Chester; Coimbra; Como; "
    "Cork; Cremona; Dijon; Dresden; Dundee; Durham; Eindhoven; Erfurt; Exeter; Ferrara; Freiburg; "
    "Galway; Gdynia; Ghent; Girona; Graz; Grenoble; Haarlem; Hastings; Heidelberg; Innsbruck; Jena; "
    "Kalmar; Kassel; Kiel; Leeds; Leicester; Leiden; Limerick; Lincoln; Linz; Lucca; Lucerne; Lund; "
    "Mainz; Malmö; Mantua; Modena; Nancy; Nantes; Norwich; Odense; Orléans; Oxford; Padua; Parma; "
    "Pisa; Plymouth; Ravenna; Rouen; Salerno; Siena; Sligo; Tampere; Tartu; Toledo; Trieste; Turku; "
    "Uppsala; Utrecht; Verona; Weimar; Winchester; Worms; York; Zwolle"
)
MONTHS = words(
    "January; February; March; April; May; June; July; August; September; October; November; December"
)
WEEKDAYS = words("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday")
SEASONS = words("spring; summer; autumn; winter")
SMALL_NUMBERS = words(
    "two; three; four; five; six; seven; eight; nine; ten; eleven; twelve; fifteen; twenty; thirty"
)

TIMES = words(
    "before breakfast; after lunch; at dawn; at midnight; towards evening; during the afternoon; "
    "without delay; for an hour; as usual; once more; at last; with some difficulty; without any help; "
    "in the early light; long after dark; on the way home; between two showers; for the first time; "
    "just after sunrise; twice that day; in a great hurry; with great care; at the usual hour; in "
    "complete silence"
)
FRONT_TIMES = words(
    "That morning; That evening; At noon; Around six; A week later; The next day; Soon afterwards; "
    "Before long; By the end of the week; Late in the afternoon; Two days earlier; After supper; At "
    "first light; On the second evening; In the meantime; A little later; Towards midnight; During the "
    "holidays; Once in a while; Shortly before dawn; Some years ago; On rainy days; From time to time; "
    "Half an hour later"
)
LINKS = words(
    "Then; Meanwhile; Even so; Later; Nevertheless; Of course; In fact; Fortunately; To be sure; "
    "Eventually; As a rule; After that; Still; Surprisingly; At the same time; In the end; Naturally; "
    "Luckily; Oddly enough"
)
MANNERS = words(
    "quietly; slowly; carefully; eagerly; reluctantly; patiently; cheerfully; suddenly; politely; "
    "nervously; calmly; proudly; gently; briskly; absently; skilfully; clumsily; silently; "
    "thoughtfully; hastily; gladly; stubbornly; solemnly; secretly; firmly"
)
SPEECH_MANNERS = words(
    "with a smile; with a shrug; at once; after a pause; without looking up; kindly; sternly; with a "
    "sigh; impatiently; dryly; in surprise; gravely; with a laugh; over and over"
)
ADJECTIVES = words(
    "small; large; old; new; plain; heavy; light; strange; handsome; ordinary; familiar; useful; "
    "precious; unusual; curious; spare; perfect; splendid; simple; humble; enormous; tiny; forgotten; "
    "remarkable; elegant; ugly; expensive; broken; valuable; peculiar; excellent; worn; extra; good; "
    "impressive; odd; shabby; lovely; antique; modest; inherited; costly; awkward; solid; unfinished; "
    "important"
)
PREDICATES = words(
    "worth more than it looked; too heavy for one person; nowhere to be found; exactly the right size; "
    "as good as new; harder to carry than expected; the pride of the house; still missing; ready at "
    "last; older than anyone thought; wrapped in grey paper; covered with dust; a present from a "
    "distant cousin; much admired by visitors; not for sale; a complete mystery; the only one of its "
    "kind; easy to recognise; smaller than it seemed; the subject of a long quarrel; as smooth as "
    "glass; damaged by the rain"
)
COLOURS = words(
    "red; blue; green; yellow; grey; white; black; brown; purple; orange; scarlet; turquoise; cream; "
    "violet; silver; dark blue; pale green; olive; ivory; rust-coloured"
)
GARMENTS = words(
    "coat; jacket; shirt; waistcoat; pullover; cardigan; raincoat; uniform; overall; cape; tunic; gown"
)
ACCESSORIES = words(
    "hat; scarf; cap; belt; tie; bow tie; beret; sash; bonnet; handkerchief; armband; bracelet"
)
MORNINGS = words(
    "grey; windy; foggy; quiet; bright; cold; dull; rainy; mild; stormy; sleepy; busy; chilly; warm; dark"
)
CIVIC = words(
    "house; school; church; tavern; street lamp; shop; park; barber; dentist; well; factory; tramcar; "
    "telephone; windmill; cinema; brewery; lawyer; garden; fire engine; bookshop"
)
FEELINGS = words(
    "tired; hopeful; hungry; curious; worried; delighted; homesick; restless; proud; puzzled; "
    "grateful; furious; lonely; content; embarrassed; nervous; relieved; suspicious; jealous; sleepy; "
    "amused; ashamed; determined; cautious; brave; thirsty; anxious; astonished"
)
TRAITS = words(
    "honest; clever; generous; lazy; shy; talkative; absent-minded; reliable; forgetful; ambitious; "
    "stern; witty; short-sighted; superstitious; modest; hard-working; impatient; well-read; "
    "good-natured; eccentric; noisy; elderly"
)
SUBJECTS = words(
    "the weather; the price of coal; a forgotten promise; an old quarrel; the coming election; a "
    "journey abroad; the missing money; a strange dream; the new bridge; a distant war; an unpaid "
    "debt; the best way home; a wedding; an accident; the harvest; a secret recipe; a lost brother; "
    "the latest fashion; an inheritance; politics; chess; astronomy; a famous robbery; the old days; "
    "an unwritten book; a shipwreck; the rising rent; philosophy; an unlucky bet; the meaning of "
    "courage; an unexpected visitor; a plan for the future"
)
ABSTRACTS = words(
    "plan; secret; idea; promise; rumour; agreement; opinion; warning; invitation; explanation; "
    "apology; discovery; accusation; excuse; memory; suggestion; proposal; decision; wish; question; "
    "report; misunderstanding"
)
JUDGEMENTS = words(
    "sensible; foolish; impossible; harmless; dangerous; ridiculous; convincing; unfair; brilliant; "
    "doubtful; useless; necessary; amusing; tiresome; unforgettable; premature; surprising; true; "
    "hopeless; wise"
)
ANIMALS = words(
    "cat; dog; sparrow; fox; hedgehog; magpie; goat; pony; rabbit; crow; mouse; goose; donkey; owl; "
    "squirrel; hen; puppy; kitten; jackdaw; beetle; bat; toad; duck; ferret; terrier; tortoise"
)
ANIMAL_LOOKS = words(
    "thin; fat; tame; lame; one-eyed; spotted; striped; grey; young; clever; noisy; fearless; hungry"
)
ANIMAL_DEEDS = words(
    "slept; waited; hid; searched for crumbs; sat; appeared; rested; lived; watched the people; sunned "
    "itself; looked for shelter; listened; hunted for insects; quarrelled with its own reflection"
)
SKIES = words(
    "clear; cloudy; the colour of lead; full of swallows; streaked with pink; bright; as dark as "
    "slate; hazy; covered with thin clouds; without a single cloud; low and grey; heavy with rain; "
    "pale yellow; full of stars"
)
WEATHERS = words(
    "the rain stopped; the wind changed; fog rolled in; the heat faded; a storm gathered; the frost "
    "returned; the sun broke through; hail rattled down; a breeze sprang up; the mist lifted; the "
    "drizzle went on; the temperature dropped; a rainbow appeared; the lightning came closer"
)
HANDLING = words(
    "examine; admire; carry; hide; buy; sell; borrow; misplace; describe; inspect; fetch; drop; find; "
    "notice; mention; deliver; wrap; unwrap; choose; return; guard; steal; pack; sketch; exchange; "
    "photograph; clean; lose; accept; look after; ask for; pay for; pick up; put away; sit down "
    "beside; search for; give away; unpack"
)
MENTAL = words(
    "thought; believed; knew; hoped; claimed; suspected; insisted; heard; remembered; admitted; "
    "feared; imagined; noticed; decided; explained; dreamed; guessed; swore"
)
SPEAKING = words("said; answered; replied; remarked; called; added; declared; explained; announced")
ASKING = words("asked; inquired; wondered; demanded")
REACTIONS = words(
    "nodded; laughed; frowned; said nothing; smiled; changed the subject; blushed; hesitated; sighed; "
    "turned away; looked at the floor; burst out laughing; began to hum"
)
COUNTED = words(
    "visitor; chair; window; step; lamp; tree; door; bottle; candle; guest; soldier; bench; tile; lamp "
    "post; child; pigeon; stranger; bicycle; cart; gentleman; tourist; crate; chimney; flag"
)
MEASURES = words("miles long; paces wide; years old; kilometres long; metres wide; leagues long")
EVENTS = words(
    "the storm; the wedding; the fair; the examination; the funeral; the election; the flood; the "
    "parade; the ball; the auction; the eclipse; the festival; the strike; the race; the coronation; "
    "the trial; the harvest supper"
)
PREPOSITIONS = words("near; beside; behind; by; close to; in front of; not far from; opposite; next to")
