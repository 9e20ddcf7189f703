"""Words of the grammar's town topics: places, things, people, adjectives, deeds and scenes.

Deeds are verb phrases in the base form; scenes are whole clauses in the past tense.
"""

from mta_viz.tasks.grammar.topic import Topic, topic

BAKERY: Topic = topic(
    places="bakery; counter; oven; flour bin; back door; cooling rack; shop window; mill",
    things=(
        "loaf; roll; pie; biscuit; rolling pin; baking tray; mixing bowl; bread knife; paper bag; apron; "
        "wooden spoon; jar of honey; sack of rye; slice of cake; recipe book; copper pan; tart; pretzel"
    ),
    people="baker; apprentice; miller; customer; delivery boy; pastry cook",
    adjectives="floury; warm; well-used; dented; delightful; fresh",
    deeds=(
        "knead the dough; sift the flour; light the oven; sweep the crumbs from the floor; weigh the "
        "raisins; roll out the pastry; sprinkle sugar over the buns; wait for the yeast to rise; open the "
        "shutters; set out the morning bread; taste the filling; grease the tins; burn the first batch; "
        "whistle an old tune"
    ),
    scenes=(
        "the smell of cinnamon drifted into the street; steam clouded the windows; the bell above the door "
        "rang; a queue stretched around the corner; the dough swelled under a damp cloth; flour dust hung "
        "in the lamplight; sparrows fought over a crust; the first customers stamped their feet against "
        "the cold"
    ),
)

SCHOOL: Topic = topic(
    places=(
        "classroom; blackboard; playground; school gate; corridor; map cupboard; bicycle shed; assembly hall"
    ),
    things=(
        "pencil; exercise book; ruler; globe; satchel; eraser; compass; inkwell; atlas; dictionary; piece "
        "of chalk; poem; homework sheet; wall chart; lunch box; handbell; protractor; certificate"
    ),
    people="teacher; headmistress; pupil; caretaker; inspector; new girl; prefect",
    adjectives="dog-eared; ink-stained; scratched; neat; required; borrowed",
    deeds=(
        "learn the long multiplication table; copy the sentence twice; raise a hand; draw a map of the "
        "coast; forget the answer; whisper to a neighbour; recite the poem without a mistake; clean the "
        "blackboard; pass a note under the desk; solve the hardest problem; spell the word aloud; arrive "
        "out of breath; explain the lesson again; count the chairs"
    ),
    scenes=(
        "chalk squeaked on the blackboard; the clock ticked towards noon; children shouted in the "
        "playground; rain streamed down the tall windows; somebody giggled in the back row; the radiators "
        "hissed; a paper aeroplane sailed across the room; the whole class fell silent"
    ),
)

THEATRE: Topic = topic(
    places="stage; dressing room; box office; balcony; orchestra pit; stage door; costume store; foyer",
    things=(
        "mask; script; wig; programme; lantern; velvet cloak; wooden sword; feathered hat; painted "
        "backdrop; ticket; bouquet; mirror; paper crown; opera glass; trapdoor key; false beard; pair of "
        "slippers; poster"
    ),
    people="actor; director; stagehand; prompter; dressmaker; critic; understudy",
    adjectives="gilded; hired; dusty; glittering; crimson; famous",
    deeds=(
        "rehearse the final scene; bow to the audience; forget a line; paint the scenery; sew the last "
        "button; raise the curtain; practise the duel; read the review; dim the lights; clap with both "
        "hands; hide behind the curtain; learn the part in a week; sell the last seat; argue about the "
        "ending"
    ),
    scenes=(
        "the audience held its breath; applause shook the chandelier; the curtain stuck halfway; a "
        "spotlight followed the dancer; voices echoed under the roof; the overture began too soon; someone "
        "coughed in the front row; the ropes creaked above the scenery"
    ),
)

LIBRARY: Topic = topic(
    places=(
        "reading room; catalogue; spiral staircase; archive; returns desk; top shelf; map room; west wing"
    ),
    things=(
        "manuscript; encyclopedia; bookmark; novel; index card; library stamp; scroll; magnifying glass; "
        "reading lamp; ladder; chronicle; diary; pamphlet; photograph; leather volume; biography; "
        "envelope; catalogue card"
    ),
    people="librarian; scholar; archivist; historian; reader; bookbinder; translator",
    adjectives="donated; faded; well-thumbed; illustrated; obscure; ancient",
    deeds=(
        "search the catalogue; read by lamplight; translate a difficult passage; stamp the due date; climb "
        "the ladder; dust the upper shelves; copy out a page; pay a small fine; quote the wrong chapter; "
        "sort the returned books; bind a torn cover; ask for silence; fall asleep over a dictionary; solve "
        "the riddle"
    ),
    scenes=(
        "dust floated in a shaft of sunlight; pages rustled at every table; the green lamps glowed; "
        "footsteps faded among the shelves; an old radiator knocked; a moth circled the lamp; the great "
        "clock struck the quarter; a cat slept on the periodicals"
    ),
)

RAILWAY: Topic = topic(
    places="station; platform; signal box; waiting room; ticket hall; viaduct; engine shed; level crossing",
    things=(
        "suitcase; timetable; whistle; signal lamp; ticket punch; trunk; umbrella; newspaper; parcel; "
        "pocket watch; red flag; basket of sandwiches; walking stick; coal shovel; travelling rug; railway "
        "map; carpet bag"
    ),
    people="stationmaster; porter; engine driver; guard; passenger; conductor; signalman",
    adjectives="battered; sooty; unclaimed; bulky; abandoned; well-travelled",
    deeds=(
        "miss the early train; check the timetable; load the luggage; punch the tickets; wave from the "
        "window; stoke the boiler; oil the wheels; change carriages; look for an empty seat; count the "
        "telegraph poles; blow the whistle; lower the signal; doze in a corner seat; ask about the delay"
    ),
    scenes=(
        "steam rolled along the platform; the express thundered through; the rails hummed; a trolley "
        "rattled past; the tunnel swallowed the last carriage; doors slammed all along the train; the "
        "loudspeaker crackled; wagons clanked in the siding"
    ),
)

MARKET: Topic = topic(
    places=(
        "market square; fountain; fish stall; town hall; cheese stand; corn exchange; arcade; flower stall"
    ),
    things=(
        "cabbage; melon; basket; pair of scales; clay pot; ribbon; carpet; lemon; onion; cheese; candle; "
        "jug; woollen scarf; bunch of parsley; bronze bell; straw hat; purse; jar of olives; turnip; "
        "silver thimble"
    ),
    people="merchant; grocer; cheesemonger; pickpocket; mayor; pedlar; housewife; flower seller",
    adjectives="colourful; cheap; imported; overpriced; exotic; tempting",
    deeds=(
        "haggle over the price; weigh the plums; fold the awning; shout above the crowd; choose the ripest "
        "pears; pay with a gold coin; unload the cart; taste a piece of cheese; wrap the fish in paper; "
        "count the change; stack the crates; gossip about the election; buy a dozen eggs; feed the pigeons"
    ),
    scenes=(
        "pigeons scattered from the fountain; the town clock struck eleven; a fiddler played for pennies; "
        "the awnings flapped in the breeze; the crowd parted for a wagon; a dog ran off with a sausage; "
        "apples rolled across the cobbles; church bells drowned the shouting"
    ),
)

CLOCKS: Topic = topic(
    places="workshop; workbench; tool chest; furnace; lathe; glass cabinet; courtyard; storeroom",
    things=(
        "clock; spring; gear; screwdriver; hammer; chisel; lens; brass hinge; cuckoo clock; padlock; key; "
        "music box; pendulum; oilcan; barometer; pair of tweezers; wind-up bird; metal file; weather vane; "
        "nail"
    ),
    people="clockmaker; locksmith; tinker; carpenter; inventor; watchman; glassblower",
    adjectives="intricate; oily; foreign; ingenious; polished; rusted",
    deeds=(
        "wind the clocks; repair the escapement; sharpen the chisel; sketch a new machine; tighten the "
        "screws; polish the brass; plane the oak board; melt the solder; sweep up the shavings; drill a "
        "tiny hole; test the alarm; replace the broken spring; measure the plank twice; sign the bottom of "
        "the case"
    ),
    scenes=(
        "a dozen pendulums swung together; sparks flew from the grindstone; the glue bubbled in its pot; "
        "the cuckoo called at the wrong hour; sawdust covered the floor; the bellows wheezed; every bell "
        "in the shop rang at once; the vice groaned"
    ),
)

POST: Topic = topic(
    places=(
        "post office; sorting table; letter box; front step; mail coach; telegraph desk; garden gate; lodge"
    ),
    things=(
        "letter; postcard; stamp; parcel; telegram; envelope; inkpot; quill; wax seal; address book; "
        "mailbag; birthday card; invitation; roll of string; love letter; bill; fountain pen; writing case"
    ),
    people="postman; clerk; telegraphist; courier; postmistress; landlady; messenger",
    adjectives="torn; crumpled; undelivered; scented; yellowed; anonymous",
    deeds=(
        "seal the envelope; read the letter twice; lick the stamp; deliver the parcel; write a short "
        "reply; sort the mail; knock at the door; burn the telegram; recognise the handwriting; wait for "
        "news; tear open the envelope; forget the address; send a cable; sign for the delivery"
    ),
    scenes=(
        "the letter box clattered; a bicycle leaned against the fence; the telegraph tapped without a "
        "pause; ink dried on the nib; the coach horn sounded in the lane; sealing wax dripped onto the "
        "desk; the doorbell startled everyone; envelopes slid across the mat"
    ),
)

MUSEUM: Topic = topic(
    places=(
        "museum; gallery; dinosaur hall; display case; entrance hall; cellar; sculpture court; cloakroom"
    ),
    things=(
        "vase; portrait; statue; fossil; coin; shield; helmet; amulet; tapestry; landscape; meteorite; "
        "flute; mosaic; stuffed owl; necklace; clay tablet; catalogue; skeleton; gold ring; model ship"
    ),
    people="curator; guide; visitor; guard; restorer; collector; sculptor",
    adjectives="ancient; priceless; cracked; mysterious; donated; Roman",
    deeds=(
        "study the inscription; guard the entrance; restore the painting; photograph the statue; read the "
        "label; dust the fossils; open the display case; lecture about the Bronze Age; hang the portrait; "
        "admire the brushwork; notice a forgery; follow the guide; number the fragments; lock the vault"
    ),
    scenes=(
        "footsteps echoed in the marble hall; the guard yawned; light fell on the mosaic floor; a school "
        "party hurried past; the alarm remained silent; shadows moved across the statues; the lift hummed "
        "between the floors; a child pointed at the skeleton"
    ),
)

CONCERT: Topic = topic(
    places="concert hall; bandstand; piano; rehearsal room; choir loft; organ; music shop; podium",
    things=(
        "violin; trumpet; drum; baton; score; music stand; cello; tuning fork; harp; clarinet; bow; "
        "songbook; metronome; violin case; tambourine; accordion; guitar; mouth organ; hymn book; "
        "gramophone record"
    ),
    people="conductor; violinist; pianist; singer; composer; drummer; organist",
    adjectives="rented; silent; rare; second-hand; battered; prize-winning",
    deeds=(
        "tune the strings; practise the slow movement; sing the second verse; turn the pages; tap out the "
        "rhythm; compose a waltz; play the overture; hum the melody; break a string; hold the last note; "
        "rehearse with the choir; listen from the balcony; whistle the refrain; bow to the conductor"
    ),
    scenes=(
        "the last chord died away; a trumpet sounded from the tower; the choir hummed softly; the drums "
        "rolled like thunder; a string snapped during the solo; the metronome clicked; the tenors came in "
        "a bar early; the organ filled the nave"
    ),
)

NEWSPAPER: Topic = topic(
    places=(
        "printing works; editor's desk; paper store; composing room; news stand; stairwell; proof table; "
        "loading bay"
    ),
    things=(
        "headline; proof sheet; type case; notebook; typewriter; camera; magazine; calendar; almanac; "
        "leaflet; roll of paper; ink roller; press card; dispatch; cartoon; paste brush; ledger; woodcut"
    ),
    people="editor; reporter; printer; typesetter; photographer; newsboy; proofreader",
    adjectives="inky; sensational; crooked; discarded; smudged; outdated",
    deeds=(
        "correct the proofs; set the type by hand; interview a witness; type the last paragraph; fold the "
        "pages; shorten the headline; check the spelling; develop the photographs; question the figures; "
        "meet the deadline; draw a cartoon of the minister; ink the rollers; print a second edition; "
        "defend the article"
    ),
    scenes=(
        "the presses rumbled below; telephones rang on every desk; the ink was still wet; bundles of "
        "papers thumped onto the van; cigar smoke curled around the lamp; the typewriters fell quiet; the "
        "newsboys raced into the street; a rumour spread through the office"
    ),
)
